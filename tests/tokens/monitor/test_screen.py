"""The live line on a real terminal; and none without a terminal."""

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]

LOOP = """
import sys, time
from leakgauge import Monitor
from support.loops import network, train

model = network()
with Monitor(model, every=10, checkpoints=0):
    train(model, 31, each=lambda *_: time.sleep(0.02))
    print("of the loop")
"""

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent / 'src'}",
    "TERM": "xterm",
    "COLUMNS": "100",
}


def here() -> tuple[str, str]:
    """What the loop writes in this process to a terminal, and to the other stream."""
    master, slave = pty.openpty()
    other = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, open(slave, "w") as terminal:
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "100")
        patch.setattr(sys, "stderr", terminal)
        patch.setattr(sys, "stdout", other)
        exec(LOOP, {})
        terminal.flush()
        shown = os.read(master, 2**16)  # a few lines, which a terminal keeps
    os.close(master)
    return shown.decode(), other.getvalue()


def in_a_process() -> tuple[str, str]:
    """What the loop writes to a terminal on its error stream, and to a pipe on the other."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP], stdout=subprocess.PIPE, stderr=slave, env=ENVIRONMENT
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # how Linux ends a terminal
            break
        if not part:
            break
        shown += part
    output, _ = process.communicate(timeout=60)
    os.close(master)
    assert process.returncode == 0, shown
    return shown.decode(), output.decode()


@pytest.mark.parametrize(
    "on_terminal",
    [here, pytest.param(in_a_process, marks=[pytest.mark.slow, pytest.mark.process])],
)
def test_the_live_line_is_seen_on_a_terminal_and_the_loops_output_stays_its_own(
    on_terminal: Callable[[], tuple[str, str]],
) -> None:
    shown, output = on_terminal()
    lines = re.findall(r"leak · step (\d+) · cheap (-?\d\.\d{3})", shown)
    assert len({step for step, _ in lines}) >= 3
    assert lines[-1][0] == "30"
    assert output == "of the loop\n"


@pytest.mark.slow
@pytest.mark.process
def test_without_a_terminal_nothing_is_shown() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOP], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    assert done.stdout == "of the loop\n"
    assert done.stderr == ""

"""Run commands of Flower as a user does, and end every process that they leave behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PROCESSES = Path("/proc")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str, heading: str) -> list[tuple[str, str]]:
    """Return language and content of the code blocks of a section of a page."""
    start = text.index(f"\n## {heading}\n") + 1
    end = text.find("\n## ", start)
    return BLOCK.findall(text[start : end if end > 0 else None])


def commands(block: str) -> list[str]:
    """Return the commands of a block, as a reader types them."""
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def free_ports(count: int) -> list[int]:
    """Return different ports of this machine on which nothing listens."""
    with ExitStack() as held:
        found = [held.enter_context(closing(socket.socket())) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


@dataclass
class Home:
    """A home of Flower's own, and what was started in it.

    Attributes:
        env: environment of each command.
        started: processes that do not end by themselves.
    """

    env: dict[str, str]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def ran(self, line: str, folder: Path, *, seconds: int = 300) -> str:
        """Run a line of a shell, and return what it printed."""
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-4000:]}"
        return done.stdout

    def start(self, line: str, folder: Path, log: Path, *, until: str, seconds: int = 90) -> None:
        """Start a line of a shell that does not end by itself, and wait for a text in its log."""
        with log.open("wb") as out:
            self.started.append(
                subprocess.Popen(
                    ["bash", "-c", line], cwd=folder, env=self.env, stdout=out, stderr=out
                )
            )
        end = time.monotonic() + seconds
        while until not in (said := log.read_text("utf-8", errors="replace")):
            assert time.monotonic() < end, f"no {until!r} after {line}:\n{said}"
            time.sleep(0.3)

    def end(self) -> None:
        """End all processes with this home, by force if they do not end themselves.

        Some leave the group of their parent, so they are found by their environment.
        """
        for number in (signal.SIGTERM, signal.SIGKILL):
            until = time.monotonic() + 10
            for process in self.alive():
                with suppress(ProcessLookupError):
                    os.kill(process, number)
            while self.alive() and time.monotonic() < until:
                for one in self.started:
                    one.poll()
                time.sleep(0.2)
        for one in self.started:
            one.wait(timeout=10)

    def alive(self) -> list[int]:
        """Return the processes with this home."""
        mark = f"FLWR_HOME={self.env['FLWR_HOME']}".encode()
        found = []
        for one in PROCESSES.glob("[0-9]*"):
            with suppress(OSError):  # ended meanwhile, or another user's
                if mark in (one / "environ").read_bytes().split(b"\0"):
                    found.append(int(one.name))
        return found


@contextmanager
def flower_home(folder: Path) -> Iterator[Home]:
    """Give a home of Flower in a folder; end its processes afterwards."""
    http, control = free_ports(2)
    home = Home(
        {
            **os.environ,
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_LOCAL_CONTROL_API_PORT": str(control),
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(http),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "400",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
        }
    )
    try:
        yield home
    finally:
        home.end()
    assert not home.alive()

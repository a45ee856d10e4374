"""Run commands on drawn input, and ask that each ends soundly."""

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from leakgauge.cli.stopping import DIFFERS, REFUSED
from leakgauge.core.checks import InputError
from support import bound, command
from support.command import Ended

LIMIT = 20
"""Largest number of seconds in which a command must end."""

STOPPED = -1
"""Stands for the exit code of a command that was stopped before it measured."""

SCRIPTS = "aé٣²ß中あ한אع🙂\u017f İı\u0301\u200d\u202e\ufeff"
SIGNS = " -_=:,.;|%*?!<>[](){}\"'\\/\n\t\r\x00\x1b#&@~`$^+"

junk = (
    st.text(st.sampled_from(SCRIPTS + SIGNS + "a0b1"), max_size=12)
    | st.sampled_from(
        [
            *("", " ", "-", "--", "0", "-0", "00", "1_0", "٣", "²", "1e400", "nan", "inf", "-inf"),
            *("None", "null", "true", "9" * 5000, "a" * 5000, "../..", "/dev/null", "é" * 300),
            *("=", ":", ",", "a=b", "a:b", "builtins:print", "os:system", "\udcff", "1,2", "0x10"),
        ]
    )
).map(lambda text: text.replace("\x00", "0"))  # the system passes no NUL in a word
"""Words that mean nothing to most settings."""


class TooLong(BaseException):
    """Ends a command that hangs; it is no ``Exception``, so the program cannot catch it."""


@contextmanager
def limited(seconds: int = LIMIT) -> Iterator[None]:
    """End the block with ``TooLong`` after a number of seconds."""

    def stop(*given: object) -> None:
        raise TooLong(f"no end within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def tried(*words: object, cwd: Path, measure: bool = True) -> Ended:
    """Run a command within ``LIMIT`` seconds, and ask that it ends soundly.

    Args:
        words: the command line.
        cwd: where it runs.
        measure: whether it runs to its end; otherwise it is stopped (``STOPPED``) when it has
            read and checked everything, and before it measures.
    """
    began = time.monotonic()
    with limited(), pytest.MonkeyPatch.context() as patch:
        if measure:
            ended = command.run(*words, cwd=cwd)
        else:
            with bound.stopped(patch):
                try:
                    ended = command.run(*words, cwd=cwd)
                except bound.Captured:
                    ended = Ended(STOPPED, "", "")
    assert time.monotonic() - began < LIMIT
    check(ended)
    return ended


def check(ended: Ended) -> None:
    """Ask for one of the program's own ends: done, refused in one line, or decided by a gate."""
    said = ended.stderr
    assert ended.returncode in (0, STOPPED, REFUSED, DIFFERS), said
    assert "Traceback" not in said, said
    errors = [line for line in said.split("\n") if line.startswith("error: ")]
    if ended.returncode != REFUSED:
        assert not errors, said
        return
    if errors:  # else a part is refused, or a gate could not decide
        assert len(errors) == 1, said
        assert said.endswith(f"{errors[0]}\n"), said
        assert len(errors[0]) < 2000, said
    else:
        assert re.search(r"^refused: |^gate: ", said + ended.stdout, re.MULTILINE), said


def refusal(read: Callable[[], Any]) -> str:
    """Return the line in which a function refuses its input within ``LIMIT`` seconds; else ""."""
    try:
        with limited():
            read()
    except InputError as error:
        said = str(error)
    else:
        return ""
    assert said
    assert "\n" not in said
    return said


def examples(
    count: int, strategy: st.SearchStrategy[Any], tried_one: Callable[[Any], None], *, of: int = 0
) -> None:
    """Call a function with exactly ``count`` different values, the same ones at every run.

    Hypothesis varies each value that it draws five times, and may stop early. So each value here
    comes from a run of its own: the first one of it is the simplest, and the second one is random.

    Args:
        count: number of values.
        strategy: draws them.
        tried_one: fails for a wrong one.
        of: other numbers draw other values.
    """
    met: set[str] = set()
    for number in range(10 * count):
        if len(met) == count:
            return
        value = _drawn(strategy, number + 1_000_000 * of)
        if repr(value) not in met:
            met.add(repr(value))
            tried_one(value)
    assert len(met) == count, f"{len(met)} of {count} examples"


def _drawn(strategy: st.SearchStrategy[Any], number: int) -> Any:
    """Return the value that a strategy draws at random for a seed."""
    values: list[Any] = []

    @seed(number)
    @settings(
        max_examples=2,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**62), strategy)  # the first choice is never again the simplest one
    def each(_: int, value: Any) -> None:
        values.append(value)

    each()
    return values[-1]

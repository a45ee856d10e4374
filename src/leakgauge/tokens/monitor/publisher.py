"""Publishes figures: in memory, in a file, to a log, in a live line, and as alerts."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from leakgauge.core.user_code import one_line
from leakgauge.tokens.monitor.buffers import Thinned
from leakgauge.tokens.monitor.record_file import RecordFile
from leakgauge.tokens.monitor.settings import (
    ADVICE,
    ALERT,
    BOUND,
    CHEAP,
    ESTIMATOR,
    GAP,
    IN_SAMPLE,
    LINEAR,
    LINEAR_UNSEEN,
    PLACEBO,
    STEP,
    UNSEEN,
)

MESSAGES = 200
"""Number of remembered messages."""

SECONDS = 0.1
"""Smallest time between two drawings of the live line."""


class Screen:
    """Shows a line that changes in place, and messages above it, on the error stream.

    Args:
        live: whether to show the line; None shows it on a terminal.
    """

    def __init__(self, live: bool | None) -> None:
        self._console = Console(stderr=True, force_terminal=True if live else None)
        self._is_live = self._console.is_terminal if live is None else live
        self._line: Live | None = None
        self._drawn = 0.0
        self.said: list[str] = []

    def say(self, text: str, *, style: str = "yellow") -> None:
        """Print a message, unless it was printed before."""
        if text in self.said:
            return
        self.said = [*self.said[-MESSAGES + 1 :], text]
        self._console.print(Text(f"leakgauge: {text}", style=style), soft_wrap=True)

    def inform(self, text: str) -> None:
        """Print a message that needs no attention, and do not remember it."""
        self._console.print(Text(f"leakgauge: {text}", style="dim"), soft_wrap=True)

    def show(self, text: str) -> None:
        """Show the line."""
        if not self._is_live or time.monotonic() - self._drawn < SECONDS:
            return
        self._drawn = time.monotonic()
        self._begun().update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)

    def stop(self, text: str) -> None:
        """Stop the line with a last text."""
        if self._line is not None:
            self._line.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
            self._line.stop()
            self._line = None

    def _begun(self) -> Live:
        if self._line is None:
            self._line = Live(
                console=self._console,
                auto_refresh=False,
                redirect_stdout=sys.stdout.isatty(),  # otherwise it would go to the error stream
                redirect_stderr=self._console.is_terminal,
            )
            self._line.start()
        return self._line


Log = Callable[[dict[str, float], int], None]

MOST = 2000
"""Largest number of entries of each kind in memory."""


class Publisher:
    """Publishes each entry to all receivers.

    Args:
        screen: the terminal.
        file: the record on disk; None without one.
        log: function called with figures by flat name, and their step.
        alert: threshold in nats for the lower end of an estimate; None for no alerts.
        on_alert: function called with the message of an alert.
    """

    def __init__(
        self,
        screen: Screen,
        file: RecordFile | None,
        log: Log | None,
        alert: float | None,
        on_alert: Callable[[str], None] | None,
    ) -> None:
        self._screen, self._file, self._log = screen, file, log
        self._alert, self._on_alert = alert, on_alert
        self._kept = {name: Thinned(MOST) for name in (CHEAP, BOUND, ALERT)}
        self._now: dict[str, str] = {}
        self._advised = ""
        for entry in file.entries() if file is not None else ():
            self._keep(entry)

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield the kept entries, by step."""
        whole = [entry for kept in self._kept.values() for entry in kept]
        yield from sorted(whole, key=lambda entry: int(entry[STEP]))

    def cheap(self, step: int, value: float) -> None:
        """Publish a cheap measure."""
        self._publish({STEP: step, CHEAP: value}, {"leak/cheap": value})
        self._now["cheap"] = f"cheap {value:.3f}"
        self._screen.show(self.line(step))

    def estimates(self, step: int, figures: Mapping[str, Any]) -> None:
        """Publish the estimates of a checkpoint, and raise an alert above the threshold."""
        bound, estimator = figures[BOUND], figures[ESTIMATOR]
        if figures.get(ADVICE, self._advised) != self._advised:
            self._advised = figures[ADVICE]
            self._screen.inform(self._advised)
        self._publish({STEP: step, **figures}, flat(figures))
        self._now["bound"] = (
            f"{estimator} {bound['value']:.2f} nats ({bound['low']:.2f} to {bound['high']:.2f})"
            f"{_unseen(figures)}, placebo {figures[PLACEBO]['value']:.2f}, at step {step}"
        )
        if self._alert is not None and bound["low"] > self._alert:
            self._raise(step, figures)
        self._screen.show(self.line(step))

    def line(self, step: int) -> str:
        """Return the live line."""
        parts = [f"step {step}", *self._now.values()]
        return "leak · " + " · ".join(parts)

    def _raise(self, step: int, figures: Mapping[str, Any]) -> None:
        bound = figures[BOUND]
        message = (
            f"alert: at step {step} gradients leak at least {bound['low']:.2f} nats of the data "
            f"(lower end of {figures[ESTIMATOR]}; placebo "
            f"{figures[PLACEBO]['value']:.2f}), above the threshold of {self._alert:g}"
        )
        self._publish({STEP: step, ALERT: message}, {})
        self._screen.say(message, style="bold red")
        if self._on_alert is not None:
            self._safely("on_alert", self._on_alert, message)

    def _publish(self, entry: dict[str, Any], flat_figures: dict[str, float]) -> None:
        self._keep(entry)
        if self._file is not None:
            self._safely("the record", self._file.add, entry)
        if self._log is not None and flat_figures:
            self._safely("log", self._log, flat_figures, int(entry[STEP]))

    def _keep(self, entry: dict[str, Any]) -> None:
        kind = next((name for name in self._kept if name in entry), None)
        if kind is not None:
            self._kept[kind].add(entry)

    def _safely(self, what: str, call: Callable[..., Any], *given: Any) -> None:
        """Call a user's function; its error must not end the user's loop."""
        try:
            call(*given)
        except Exception as error:  # noqa: BLE001
            self._screen.say(f"{what} failed ({one_line(error)})")


def _unseen(figures: Mapping[str, Any]) -> str:
    """Return what an estimate that finds nothing could not have seen; else empty."""
    return f", could not have seen less than {figures[UNSEEN]:.2f}" if UNSEEN in figures else ""


def flat(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return the estimates of a checkpoint by flat name.

    >>> ends = {"value": 0.5, "low": 0.4, "high": 0.6}
    >>> none = {"value": 0.0, "low": -0.1, "high": 0.1}
    >>> found = {"information_nats": ends, "placebo": none, "critic_gap": ends,
    ...     "linear_gaussian": ends, "in_sample": 0.9, "estimator": "infonce"}
    >>> sorted(flat(found))[:3], flat(found)["leak/mi/infonce/low"]
    (['leak/gap/infonce', 'leak/linear_gaussian', 'leak/mi/infonce'], 0.4)
    """
    bound, name = figures[BOUND], f"leak/mi/{figures[ESTIMATOR]}"
    unseen = {f"{name}/unseen_below": UNSEEN, "leak/linear_gaussian/unseen_below": LINEAR_UNSEEN}
    return {
        name: bound["value"],
        f"{name}/low": bound["low"],
        f"{name}/high": bound["high"],
        f"{name}/placebo": figures[PLACEBO]["value"],
        f"{name}/in_sample": figures[IN_SAMPLE],
        f"leak/gap/{figures[ESTIMATOR]}": figures[GAP]["value"],
        "leak/linear_gaussian": figures[LINEAR]["value"],
        **{label: figures[key] for label, key in unseen.items() if key in figures},
    }

"""Where figures go: the record, the file, the log, the live line, and alerts."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from leakgauge.gradients.probing import one_line
from leakgauge.tokens.monitor import words
from leakgauge.tokens.monitor.record_file import RecordFile
from leakgauge.tokens.monitor.screen import Screen
from leakgauge.tokens.monitor.thinned import Thinned

Log = Callable[[dict[str, float], int], None]

MOST = 2000
"""Entries of each kind that are kept in memory."""


class Publishing:
    """Gives each entry to all that want it.

    Args:
        screen: the terminal.
        file: on disk; None without one.
        log: called with figures by flat name, and their step.
        alert: nats above which the lower end of an estimate raises an alert; None for never.
        on_alert: called with the message of an alert.
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
        self._kept = {name: Thinned(MOST) for name in (words.CHEAP, words.BOUND, words.ALERT)}
        self._now: dict[str, str] = {}
        for entry in file.entries() if file is not None else ():
            self._keep(entry)

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield what is kept, by step."""
        whole = [entry for kept in self._kept.values() for entry in kept]
        yield from sorted(whole, key=lambda entry: int(entry[words.STEP]))

    def cheap(self, step: int, value: float) -> None:
        """Publish a cheap measure."""
        self._publish({words.STEP: step, words.CHEAP: value}, {"leak/cheap": value})
        self._now["cheap"] = f"cheap {value:.3f}"
        self._screen.show(self.line(step))

    def estimates(self, step: int, figures: Mapping[str, Any]) -> None:
        """Publish the estimates of a checkpoint, and raise an alert where they call for one."""
        bound, estimator = figures[words.BOUND], figures[words.ESTIMATOR]
        self._publish({words.STEP: step, **figures}, flat(figures))
        self._now["bound"] = (
            f"{estimator} {bound['value']:.2f} nats ({bound['low']:.2f} to {bound['high']:.2f}), "
            f"placebo {figures[words.PLACEBO]['value']:.2f}, at step {step}"
        )
        if self._alert is not None and bound["low"] > self._alert:
            self._raise(step, figures)
        self._screen.show(self.line(step))

    def line(self, step: int) -> str:
        """Return the live line."""
        parts = [f"step {step}", *self._now.values()]
        return "leak · " + " · ".join(parts)

    def _raise(self, step: int, figures: Mapping[str, Any]) -> None:
        bound = figures[words.BOUND]
        message = (
            f"alert: at step {step} gradients tell at least {bound['low']:.2f} nats of the data "
            f"(lower end of {figures[words.ESTIMATOR]}; placebo "
            f"{figures[words.PLACEBO]['value']:.2f}), above the threshold of {self._alert:g}"
        )
        self._publish({words.STEP: step, words.ALERT: message}, {})
        self._screen.say(message, style="bold red")
        if self._on_alert is not None:
            self._safely("on_alert", lambda: self._on_alert and self._on_alert(message))

    def _publish(self, entry: dict[str, Any], flat_figures: dict[str, float]) -> None:
        self._keep(entry)
        if self._file is not None:
            file = self._file
            self._safely("the record", lambda: file.add(entry))
        if self._log is not None and flat_figures:
            log, step = self._log, int(entry[words.STEP])
            self._safely("log", lambda: log(flat_figures, step))

    def _keep(self, entry: dict[str, Any]) -> None:
        kind = next((name for name in self._kept if name in entry), None)
        if kind is not None:
            self._kept[kind].add(entry)

    def _safely(self, what: str, call: Callable[[], Any]) -> None:
        """Call what the user gave; its error must not end the user's loop."""
        try:
            call()
        except Exception as error:  # noqa: BLE001
            self._screen.say(f"{what} failed ({type(error).__name__}: {one_line(error)})")


def flat(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return the estimates of a checkpoint by flat name.

    >>> ends = {"value": 0.5, "low": 0.4, "high": 0.6}
    >>> none = {"value": 0.0, "low": -0.1, "high": 0.1}
    >>> found = {"information_nats": ends, "placebo": none, "critic_gap": ends,
    ...     "linear_gaussian": ends, "in_sample": 0.9, "estimator": "infonce"}
    >>> sorted(flat(found))[:3], flat(found)["leak/mi/infonce/low"]
    (['leak/gap/infonce', 'leak/linear_gaussian', 'leak/mi/infonce'], 0.4)
    """
    bound, name = figures[words.BOUND], f"leak/mi/{figures[words.ESTIMATOR]}"
    return {
        name: bound["value"],
        f"{name}/low": bound["low"],
        f"{name}/high": bound["high"],
        f"{name}/placebo": figures[words.PLACEBO]["value"],
        f"{name}/in_sample": figures[words.IN_SAMPLE],
        f"leak/gap/{figures[words.ESTIMATOR]}": figures[words.GAP]["value"],
        "leak/linear_gaussian": figures[words.LINEAR]["value"],
    }

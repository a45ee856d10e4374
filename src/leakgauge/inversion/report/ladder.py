"""Quality of rebuilt images on each rung of a ladder, and the first rung that stops the attack."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leakgauge.inversion.metrics.table import GAIN, LPIPS, PSNR
from leakgauge.inversion.run.attempt import RUNGS
from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.report.grouping import Test
from leakgauge.report.wording import short
from leakgauge.results.measurements import Measurement

_SIZE = (8.2, 3.9)  # inches


@dataclass(frozen=True)
class Step:
    """One rung of a ladder with its figures.

    Attributes:
        number: number of the rung, from 1.
        name: one of ``RUNGS``.
        psnr: PSNR of the rebuilt images.
        gain: PSNR above the best guess without the update.
        lpips: LPIPS of the rebuilt images, if measured.
    """

    number: int
    name: str
    psnr: Measurement
    gain: Measurement
    lpips: Measurement | None

    @property
    def words(self) -> str:
        """Behaviour of the clients on this rung."""
        return RUNGS[self.name]

    @property
    def broken(self) -> bool:
        """Whether the attack is not clearly better than the best guess."""
        return self.gain.estimate.low <= 0


def ladder_of(tests: Sequence[Test]) -> list[Step]:
    """Return the rungs of a ladder in order; empty if the attempts are not a ladder."""
    steps: list[Step] = []
    for test in tests:
        psnr, gain = test.at(PSNR), test.at(GAIN)
        rung = "" if psnr is None else psnr.details.get("rung", "")
        if psnr is None or gain is None or not rung:
            continue
        steps.append(Step(len(steps) + 1, rung, psnr, gain, test.at(LPIPS)))
    return steps


def breaking(steps: Sequence[Step]) -> Step | None:
    """Return the first rung on which the attack does not clearly beat the guess; None without one.

    The interval of the gain is paired: each image is compared with its own guess.
    """
    return next((step for step in steps if step.broken), None)


def ladder_sentence(steps: Sequence[Step]) -> str:
    """Return a sentence on the rung that stops the attack; empty without a ladder."""
    if not steps:
        return ""
    at = breaking(steps)
    if at is None:
        return (
            "The attack beats the best guess without the update on every rung; on the highest by "
            f"{short(steps[-1].gain.estimate.value)} dB."
        )
    gain = at.gain.estimate
    return (
        f"The attack breaks at rung {at.number} ({at.words}): PSNR beyond the best guess without "
        f"the update is {short(gain.value)} dB, with an interval of {short(gain.low)} to "
        f"{short(gain.high)} dB."
    )


def draw_ladder(steps: Sequence[Step], *, name: str) -> Markup | None:
    """Return a chart of PSNR, its interval and the best guess by rung; None without a ladder.

    Args:
        steps: result of ``ladder_of``.
        name: unique name of the chart on the page.
    """
    if not steps:
        return None
    at = breaking(steps)
    with chart(name, _SIZE) as (axes, svg):
        for step in steps:
            one, number = step.psnr.estimate, step.number
            guess = one.value - step.gain.estimate.value
            axes.plot([number - 0.36, number + 0.36], [guess, guess], color=MUTED, lw=2)
            axes.plot([number, number], [one.low, one.high], color=ACCENT, lw=2)
            filled = ACCENT if not step.broken else "none"
            axes.plot([number], [one.value], "o", ms=9, mec=ACCENT, mfc=filled, mew=2)
        if at is not None:
            axes.axvline(at.number - 0.5, color=INK, lw=1.5, ls=(0, (4, 3)))
        axes.set_xticks([step.number for step in steps])
        axes.set_xlim(0.4, len(steps) + 0.6)
        axes.set_xlabel("rung")
        axes.grid(visible=False, axis="x")
        axes.set_position((0.07, 0.17, 0.91, 0.8))
    return svg[0]

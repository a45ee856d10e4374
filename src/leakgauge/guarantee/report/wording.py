"""What an audit of a guarantee found, in words and in charts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from leakgauge.core.checks import require
from leakgauge.guarantee.metrics import EPSILON, GAUSSIAN
from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.report.wording import count, short
from leakgauge.results.measurements import Estimate, Measurement

THEORY = {
    "pair_exact": "Promised for this record (exact)",
    "mechanism_exact": "Promised for the worst record (exact, at twice the clip)",
    "mechanism_exact_at_clip": "Exact, at the clip",
    "mechanism_classic": "Textbook formula, at the clip (proven up to 1 only)",
    "per_attribute_classic": "Textbook formula over the number of attributes (the paper's "
    "yardstick; bounds nothing)",
    "largest_showable": "Most that so many trials can show",
}
"""What is known without a measurement, in the order in which it is shown."""

_LEAST = 0.1
"""Where the log axis of a chart ends, at the lowest: a bound of 0 has no place on it."""

BROKEN = "The promise does not hold"
BIASED = (
    "The paper's estimate takes the best threshold on the trials that it is judged on, so it is "
    "biased upward, and its interval knows nothing of that choice."
)


@dataclass(frozen=True, eq=False)
class Finding:
    """One audited guarantee.

    Attributes:
        settings: clip, noise, canary, trials, delta, attribute, ...
        figures: its records by metric.
    """

    settings: Mapping[str, Any]
    figures: Mapping[str, Measurement]

    @property
    def record(self) -> Measurement:
        """The one that carries theory and scores."""
        return self.figures[EPSILON]

    @property
    def theory(self) -> Mapping[str, float]:
        """What is known without a measurement."""
        return self.record.theory

    @property
    def saturated(self) -> bool:
        """Not one trial went wrong: more trials would show more."""
        return self.record.estimate.low >= self.theory["largest_showable_low"]

    @property
    def violated(self) -> bool:
        """The mechanism does not keep what it claims for this record (at 95 % confidence)."""
        return self.figures[GAUSSIAN].estimate.low > self.theory["pair_exact"]


def finding(settings: Mapping[str, Any], records: Sequence[Measurement]) -> Finding:
    """One audit's settings and records.

    Raises:
        InputError: some are missing, as in a damaged folder.
    """
    figures = {record.metric: record for record in records}
    for known, wanted, what in (
        (settings, ("clip", "noise", "canary", "trials", "delta", "attribute"), "settings"),
        (figures, (EPSILON, GAUSSIAN), "records"),
    ):
        for name in wanted:
            require(name in known, f"the {what} of this audit lack {name!r}; run it again")
    return Finding(settings, figures)


def sentences(found: Finding) -> list[str]:
    """The result for a reader who is no specialist; the last one is the verdict."""
    ask, theory, details = found.settings, found.theory, found.record.details
    estimate, gaussian = found.record.estimate, found.figures[GAUSSIAN].estimate
    most, trials = short(theory["largest_showable_low"]), count(int(ask["trials"]))
    limit = f"The trials are not saturated: without an error they would show {most}"
    if found.saturated:
        limit = (
            f"Not one trial went wrong, so the trials are the limit: {trials} cannot show more "
            f"than {most}, whatever leaks; more --trials can"
        )
    verdict = (
        f"{BROKEN}: where noise is Gaussian, these errors mean an epsilon of at least "
        f"{short(gaussian.low)}, more than is promised for this record. A right mechanism "
        "looks so in at most 5 of 100 audits; repeat with another --seed."
        if found.violated
        else "The audit found nothing against the promise. That is no proof: another record may "
        "show more, and this many trials can refute no promise above "
        f"{short(theory['largest_showable_gaussian_low'])}."
    )
    return [
        f"{_mechanism(str(ask['mechanism']))} (clip {ask['clip']:g}, noise {ask['noise']:g}) "
        f"released the gradient of a {_canary(str(ask['canary']))} {trials} times, half with "
        f"{ask['attribute']!r} = {details['first']!r}, half with {details['second']!r}. Epsilon "
        "says how well these can be told apart, from 0 (not at all) upward.",
        f"Shown: epsilon is at least {short(estimate.low)} (95 % confidence; best guess "
        f"{short(estimate.value)}; delta {ask['delta']:g}). {limit}.",
        f"Promised: epsilon is at most {short(theory['pair_exact'])} for this record and "
        f"{short(theory['mechanism_exact'])} for the worst one (by the textbook formula, which "
        f"is proven up to 1 only: {short(theory['mechanism_classic'])}).",
        verdict,
    ]


def _mechanism(name: str) -> str:
    return {"dpsgd": "DP-SGD", "opacus": "A step of Opacus' optimizer"}.get(name, f"'{name}'")


def _canary(name: str) -> str:
    kind, _, domain = name.partition("-")
    return f"{kind} record (domain: {domain})" if domain else f"{kind} record"


def draw_scores(record: Measurement, *, name: str) -> Markup | None:
    """The scores under both hypotheses (Li et al., CCS 2024, Figure 7).

    Args:
        record: of epsilon.
        name: a word that no other chart of the page has.
    """
    found = record.histogram
    if found is None:
        return None
    with chart(name) as (axes, svg):
        for counts, colour in ((found.null, MUTED), (found.alternative, ACCENT)):
            axes.stairs(counts, found.edges, fill=True, color=colour, alpha=0.25)
            axes.stairs(counts, found.edges, color=colour, linewidth=1.6)
        axes.set_xlabel("score of a release")
        axes.grid(visible=False, axis="x")
    return svg[0]


@dataclass(frozen=True)
class Step:
    """What stands at one value of the axis of ``draw_theory``."""

    value: float
    shown: Estimate
    in_sample: Estimate
    theory: Mapping[str, float]


def draw_theory(steps: Sequence[Step], axis: str, *, name: str) -> Markup:
    """Epsilon as shown against what is promised (Li et al., CCS 2024, Figure 8); log scale.

    Args:
        steps: with ascending values.
        axis: what varies: ``"noise"`` or ``"clip"``.
        name: a word that no other chart of the page has.
    """
    x = [step.value for step in steps]
    dash = {"pair_exact": "-", "mechanism_classic": (0, (4, 3)), "largest_showable": (0, (1, 2))}
    with chart(name) as (axes, svg):
        axes.set_yscale("log")
        for key, line in dash.items():
            axes.plot(x, [step.theory[key] for step in steps], color=MUTED, ls=line, lw=1.6)
        per_attribute = [step.theory["per_attribute_classic"] for step in steps]
        axes.plot(x, per_attribute, color=INK, marker="_", markersize=12, mew=2.2, ls="")
        for step in steps:
            low = max(step.shown.low, _LEAST)
            axes.plot([step.value] * 2, [low, max(step.shown.value, low)], color=ACCENT, lw=1.8)
        paper = [max(step.in_sample.value, _LEAST) for step in steps]
        axes.plot(x, paper, color=ACCENT, marker="o", markersize=6, ls="")
        axes.set_xlabel(axis)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(LogLocator(10))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xticks(x, [f"{value:g}" for value in x])
        axes.grid(visible=False, axis="x")
    return svg[0]


def theory_says(steps: Sequence[Step], axis: str) -> str:
    """``draw_theory`` in words."""
    told = "; ".join(
        f"{axis} {step.value:g}: shown {short(step.shown.value)}, by the paper's estimate "
        f"{short(step.in_sample.value)}, promised {short(step.theory['pair_exact'])}"
        for step in steps
    )
    return f"Epsilon along {axis}. {told}."


def saturated(steps: Sequence[Step]) -> list[float]:
    """The values at which the trials and not the mechanism are the limit."""
    return [
        step.value
        for step in steps
        if math.isclose(step.in_sample.value, step.theory["largest_showable"], rel_tol=1e-6)
    ]

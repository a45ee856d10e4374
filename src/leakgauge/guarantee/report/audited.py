"""The settings and figures of one audited guarantee."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leakgauge.core.checks import require
from leakgauge.guarantee.metrics import CLAIMED, DISTANCE_OVER_CLIP, EPSILON, GAUSSIAN, IN_SAMPLE
from leakgauge.guarantee.spec import GuaranteeSpec
from leakgauge.report.facts import plain_interval
from leakgauge.results.measurements import Measurement
from leakgauge.runs.question import Answer
from leakgauge.runs.spec import declared

SETTINGS = ("clip", "noise", "canary", "mechanism", "trials", "delta", "attribute")


@dataclass(frozen=True, eq=False)
class AuditedGuarantee:
    """One audited guarantee.

    Attributes:
        settings: clip, noise, canary, mechanism, trials, delta, attribute, ...
        figures: its measurements by metric.
    """

    settings: Mapping[str, Any]
    figures: Mapping[str, Measurement]

    @property
    def epsilon(self) -> Measurement:
        """The measurement of epsilon, which carries the theory and the scores."""
        return self.figures[EPSILON]

    @property
    def values(self) -> list[str]:
        """The record's own value, then the new ones."""
        details = self.epsilon.details
        others = json.loads(details["others"]) if "others" in details else [details["second"]]
        return [details["first"], *others]

    @property
    def new_value(self) -> str:
        """The new value in words."""
        _, *others = self.values
        return others[0] if len(others) == 1 else f"one of {len(others)} others"

    @property
    def theory(self) -> Mapping[str, float]:
        """The epsilons that are known without a measurement, by name."""
        return self.epsilon.theory

    @property
    def saturated(self) -> bool:
        """Whether no trial went wrong, so that more trials would show more."""
        return self.epsilon.estimate.low >= self.theory["largest_showable_low"]

    @property
    def violated(self) -> bool:
        """Whether the mechanism breaks its claim for this record (at 95 % confidence)."""
        return self.figures[GAUSSIAN].estimate.low > self.theory["pair_exact"]

    @property
    def claimed(self) -> float | None:
        """The epsilon that a filter's own parameters say; None for another mechanism."""
        return self.theory.get(CLAIMED)

    @property
    def refutes_claim(self) -> bool:
        """Whether the releases show more than a filter's parameters say (at 95 % confidence)."""
        return self.claimed is not None and self.figures[GAUSSIAN].estimate.low > self.claimed

    def upper_end(self, metric: str) -> float:
        """Return the upper end of an epsilon's interval: infinite if no trial went wrong.

        A measurement holds finite numbers only: an infinite end is kept as the promise for the
        worst record, or as the value if that is larger.
        """
        estimate = self.figures[metric].estimate
        stand_in = max(estimate.value, self.theory["mechanism_exact"])
        return math.inf if estimate.high == stand_in else estimate.high


def audited_guarantee(
    settings: Mapping[str, Any], measurements: Sequence[Measurement]
) -> AuditedGuarantee:
    """Return the audit that the settings and measurements of a run describe.

    Raises:
        InputError: some are missing, as in a damaged folder.
    """
    figures = {one.metric: one for one in measurements}
    for name in SETTINGS:
        require(name in settings, f"the settings of this audit lack {name!r}; run it again")
    for name in (EPSILON, GAUSSIAN):
        require(name in figures, f"the measurements of this audit lack {name!r}; run it again")
    # A run that is read back has lost the order of declaration.
    names = [*(name for name in declared(GuaranteeSpec) if name in settings), *settings]
    return AuditedGuarantee({name: settings[name] for name in names}, figures)


NAMES = {"estimate": EPSILON, "gaussian": GAUSSIAN, "in_sample": IN_SAMPLE}
"""The metrics of the three estimates, by their names in the JSON."""


def as_json(answer: Answer, folder: Path) -> dict[str, Any]:
    """Return settings and figures by name; None stands for an interval without an upper end."""
    audited = audited_guarantee(answer.run.settings, answer.measurements)
    kind, _, domain = str(audited.settings["canary"]).partition("-")
    return {
        **audited.settings,
        "canary": kind,
        "domain": domain or None,
        "values": audited.values,
        "distance_over_clip": audited.figures[DISTANCE_OVER_CLIP].estimate.value,
        "epsilon": {
            **{name: _ends(audited, metric) for name, metric in NAMES.items()},
            **audited.theory,
        },
        "saturated": audited.saturated,
        "violated": audited.violated,
    }


def _ends(audited: AuditedGuarantee, metric: str) -> dict[str, float | None]:
    high = audited.upper_end(metric)
    ends = plain_interval(audited.figures[metric].estimate)
    return {**ends, "high": high if math.isfinite(high) else None}

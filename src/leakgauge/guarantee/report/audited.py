"""The settings and figures of one audited guarantee."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leakgauge.core.checks import require
from leakgauge.defenses.claims import statement_of
from leakgauge.guarantee.filter import BATCH, claim_of, is_filter
from leakgauge.guarantee.metrics import (
    APART,
    CLAIMED,
    DIRECTION,
    DISTANCE_OVER_CLIP,
    EPSILON,
    GAUSSIAN,
    GAUSSIAN_TEST,
    IN_SAMPLE,
    LAPLACE_TEST,
    ODD,
    TRAINING,
)
from leakgauge.guarantee.spec import RELATIONS, GuaranteeSpec
from leakgauge.privacy.promises import RECORD, Neighbours
from leakgauge.report.facts import plain_interval
from leakgauge.results.measurements import Measurement
from leakgauge.runs.question import Answer
from leakgauge.runs.spec import declared

DECIDING = (GAUSSIAN_TEST, LAPLACE_TEST, GAUSSIAN, EPSILON)
"""Metrics of epsilon; the first of them that an audit has decides."""

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
    def direction(self) -> str:
        """The direction that the releases are read along; empty where no pilot chose it."""
        return self.epsilon.details.get(DIRECTION, "")

    @property
    def saturated(self) -> bool:
        """Whether no trial went wrong, so that more trials would show more."""
        return self.epsilon.estimate.low >= self.theory["largest_showable_low"]

    @property
    def near(self) -> Neighbours:
        """Unit and relation of the promise; runs of older versions replace a record."""
        unit = self.settings.get("unit") or RECORD
        return Neighbours(unit, self.settings.get("relation", RELATIONS[0]))

    @property
    def releases(self) -> int:
        """Number of releases of a training, over which epsilon is composed."""
        return int(self.settings.get("releases", 1))

    @property
    def promised(self) -> float:
        """The epsilon of one release for the worst neighbours; infinite without privacy."""
        return self.theory.get("mechanism_exact", math.inf)

    @property
    def training_promised(self) -> float:
        """The epsilon of all releases for the worst neighbours."""
        return self.theory.get("training", self.promised)

    @property
    def pair_promised(self) -> float:
        """The epsilon of one release for the audited record; infinite without privacy."""
        return self.theory.get("pair_exact", math.inf)

    @property
    def why(self) -> str:
        """Why the mechanism has no differential privacy; empty if it has."""
        name = str(self.settings["mechanism"])
        if not is_filter(name):
            return ""
        noise = self.settings.get("server_noise")
        return statement_of(name, batch_size=BATCH, server_noise=noise).why

    @property
    def deciding(self) -> str:
        """The metric whose lower end is compared with claim and promise."""
        return next(name for name in DECIDING if name in self.figures)

    @property
    def shown(self) -> float:
        """The epsilon that the releases show at least, by the deciding metric."""
        return self.figures[self.deciding].estimate.low

    @property
    def violated(self) -> bool:
        """Whether the mechanism breaks its claim for this record, with the audit's confidence."""
        pure = self.deciding == LAPLACE_TEST
        bound = self.theory.get("pair_pure", math.inf) if pure else self.pair_promised
        return self.shown > bound

    @property
    def claimed(self) -> float | None:
        """The epsilon that a filter's own parameters say; None for another mechanism."""
        return self.theory.get(CLAIMED)

    @property
    def claimed_delta(self) -> float:
        """The delta that a filter's own parameters say; 0 if they say none."""
        claim = claim_of(str(self.settings["mechanism"]))
        return 0.0 if claim is None else claim.delta

    @property
    def neighbours(self) -> bool:
        """Whether the audited versions are neighbours of the promise."""
        return APART not in self.epsilon.details

    @property
    def odd(self) -> bool:
        """Whether the scores contradict the noise that the mechanism claims."""
        return ODD in self.epsilon.details

    @property
    def refutes_claim(self) -> bool:
        """Whether the releases show more than a filter's parameters say.

        A claim for added clients says nothing of versions that are further apart.
        """
        return self.claimed is not None and self.neighbours and self.shown > self.claimed

    def upper_end(self, metric: str) -> float:
        """Return the upper end of an epsilon's interval: infinite if no trial went wrong.

        A measurement holds finite numbers only: an infinite end is kept as the promise for the
        worst record, or as the value if that is larger.
        """
        estimate = self.figures[metric].estimate
        stand_in = max(estimate.value, self.theory.get("mechanism_exact", 0.0))
        return math.inf if estimate.high == stand_in > 0 else estimate.high


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
    require(EPSILON in figures, f"the measurements of this audit lack {EPSILON!r}; run it again")
    # A run that is read back has lost the order of declaration.
    names = [*(name for name in declared(GuaranteeSpec) if name in settings), *settings]
    return AuditedGuarantee({name: settings[name] for name in names}, figures)


NAMES = {
    "estimate": EPSILON,
    "gaussian": GAUSSIAN,
    "gaussian_test": GAUSSIAN_TEST,
    "laplace_test": LAPLACE_TEST,
    "training_test": TRAINING,
    "in_sample": IN_SAMPLE,
}
"""The metrics of the estimates, by their names in the JSON."""


def as_json(answer: Answer, folder: Path) -> dict[str, Any]:
    """Return settings and figures by name; None stands for an interval without an upper end."""
    audited = audited_guarantee(answer.run.settings, answer.measurements)
    kind, _, domain = str(audited.settings["canary"]).partition("-")
    apart = audited.figures.get(DISTANCE_OVER_CLIP)
    return {
        **audited.settings,
        "canary": kind,
        "domain": domain or None,
        "values": audited.values,
        "distance_over_clip": None if apart is None else apart.estimate.value,
        "epsilon": {
            **{name: _ends(audited, one) for name, one in NAMES.items() if one in audited.figures},
            **audited.theory,
        },
        "private": not audited.why,
        "why": audited.why,
        "deciding": audited.deciding,
        "neighbours": audited.neighbours,
        "refutes_claim": audited.refutes_claim,
        "saturated": audited.saturated,
        "violated": audited.violated,
    }


def _ends(audited: AuditedGuarantee, metric: str) -> dict[str, float | None]:
    high = audited.upper_end(metric)
    ends = plain_interval(audited.figures[metric].estimate)
    return {**ends, "high": high if math.isfinite(high) else None}

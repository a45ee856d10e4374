"""Observes a step: its cheap measure, and its pair for estimates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

import torch
from torch import Tensor, nn

from leakgauge.core.types import Grads
from leakgauge.defenses.defense import Defense, DefenseSettings
from leakgauge.gradients.factored.base import Factors
from leakgauge.gradients.walk import Layer
from leakgauge.tokens.monitor.alignment import FEWEST, cheap_measure
from leakgauge.tokens.monitor.defending import DefendedGradients
from leakgauge.tokens.monitor.passes import Pass
from leakgauge.tokens.monitor.reading import GradientReader
from leakgauge.tokens.monitor.scaling import LossScale
from leakgauge.tokens.monitor.settings import SUM, MonitorSettings
from leakgauge.tokens.monitor.taps import Taps

SHOWN = 6
"""Largest number of layers in a message."""


@dataclass
class StepObservation:
    """The result of one observed step.

    Attributes:
        cheap: cheap measure; None if it is not due or cannot be computed.
        features: mean data features ``[d]``; None if the step gives no pair.
        gradient: reduced gradient ``[k]``; None if the step gives no pair.
        batch_size: number of records of the last pass.
        lines: messages for the user.
    """

    cheap: float | None = None
    features: Tensor | None = None
    gradient: Tensor | None = None
    batch_size: int = 0
    lines: list[str] = field(default_factory=list)


class StepObserver:
    """Observes the gradients of steps.

    Args:
        model: trained model.
        layers: watched layers by name.
        features: name of the module that outputs the data features; None for the default.
        watch: settings of the monitor.
        defense: defense of the gradients; None for none.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Mapping[str, Layer],
        features: str | None,
        watch: MonitorSettings,
        defense: Defense | DefenseSettings | None,
    ) -> None:
        self._watch = watch
        self._layers = dict(layers)
        self.reading = GradientReader(model, layers, width=watch.width, seed=watch.seed)
        self.taps = Taps(model, layers, features, gathers=watch.gathers)
        self._of_batches = None if defense is None else self._defending(defense)
        self._of_records = self._of_batches
        self.not_finite = 0
        self._device = next(model.parameters()).device.type
        self._scale = LossScale()
        self._said: set[str] = set()

    def start(self, step: int) -> None:
        """Register the hooks, before a step."""
        self.taps.start()
        self._scale.start()
        self.forget(step)

    def stop(self) -> None:
        """Remove the hooks."""
        self.taps.stop()
        self._scale.stop()

    def forget(self, step: int) -> None:
        """Drop the caught tensors, and prepare for a step."""
        self._scale.forget()
        whole = self._needs_records(step)
        self.taps.forget(
            due=self._watch.is_cheap(step) or whole,
            gathers=self._watch.is_gathered(step),
            keep=None if whole else self._watch.records,
        )

    def settle(self, watch: MonitorSettings) -> None:
        """Take other settings from the next step on."""
        self._watch = watch

    def defend_records(self, defense: Defense) -> None:
        """Apply a defense to records' gradients, but not to those of batches."""
        self._of_records = self._defending(defense)

    def look(self, step: int) -> StepObservation:
        """Return the observation of a step; a loop's autocast does not reach its sums."""
        one = self.taps.last
        seen = StepObservation(batch_size=0 if one is None else one.count)
        if self._watch.is_cheap(step) or self._watch.is_gathered(step):
            with torch.autocast(self._device, enabled=False):
                self._measure(one, step, seen)
        return seen

    def _measure(self, one: Pass | None, step: int, seen: StepObservation) -> None:
        """Add what is due at a step to its observation."""
        if self.reading.is_empty:
            seen.lines.append(
                "no parameter of the model has a gradient at the optimizer's step; call "
                "loss.backward() before it"
            )
            return
        found = self._factors(one, seen) if one is not None and one.due else {}
        kept = self._kept(found, step, seen)
        if not isfinite(float(kept.sum())):
            self._not_finite(seen)
            return
        if self._watch.is_gathered(step):
            seen.features, seen.gradient = self.taps.features(), kept
            if seen.features is None:
                self._no_pass(seen)
        if self._watch.is_cheap(step):
            seen.cheap = self._cheap(one, found, step, seen)

    def _defending(self, defense: Defense | DefenseSettings) -> DefendedGradients:
        summed = self._watch.reduction == SUM
        return DefendedGradients(defense, self.reading.shapes, seed=self._watch.seed, summed=summed)

    def _needs_records(self, step: int) -> bool:
        """Return whether the batch's gradient is computed from those of its records."""
        defense = self._of_batches
        return defense is not None and defense.per_record and self._watch.is_gathered(step)

    def _factors(self, one: Pass, seen: StepObservation) -> dict[str, Factors]:
        found, left = one.factors(self.taps.able, self._scale.of_records())
        others = [name for name in self._layers if name not in self.taps.able]
        out = [name for name in self._layers if name in left or name in others]
        if out and found and "left out" not in self._said:
            self._said.add("left out")
            shown = ", ".join(repr(name) for name in out[:SHOWN])
            more = f" and {len(out) - SHOWN} more" if len(out) > SHOWN else ""
            seen.lines.append(
                f"the cheap measure leaves out layers without gradients of single records: "
                f"{shown}{more}"
            )
        return found

    def _kept(self, found: Mapping[str, Factors], step: int, seen: StepObservation) -> Tensor:
        """Return the reduced gradient after the defense."""
        of = self._of_batches
        if of is None:
            return self.reading.kept() / self._scale.of_step()
        scale = self._scale.of_step()
        grads: Grads = {name: leaf / scale for name, leaf in self.reading.gradient().items()}
        if of.per_record and found:
            grads = of.mean(list(found.values()), seen.batch_size, step)
        return self.reading.kept(of.update(grads, step, max(1, seen.batch_size)))

    def _cheap(
        self, one: Pass | None, found: Mapping[str, Factors], step: int, seen: StepObservation
    ) -> float | None:
        if one is None or one.x is None:
            self._no_pass(seen)
            return None
        if seen.batch_size < FEWEST:
            seen.lines.append(
                f"a batch has {_records(seen.batch_size)}, and the cheap measure compares the "
                f"records of a batch; it needs {FEWEST} or more"
            )
            return None
        if not found:
            seen.lines.append(
                "no watched layer gives gradients of single records, which the cheap measure "
                "needs; watch linear layers, convolutions or embeddings that run once"
            )
            return None
        some = slice(0, self._watch.records)
        value = cheap_measure(
            one.x[some],
            [layer.rows(some) for layer in found.values()],
            self._of_records,
            step=step,
            seed=self._watch.seed,
        )
        if value is None:
            self._not_finite(seen)
        return value

    def _not_finite(self, seen: StepObservation) -> None:
        self.not_finite += 1
        seen.lines.append("a gradient is not finite (NaN or infinite); such steps are left out")

    @staticmethod
    def _no_pass(seen: StepObservation) -> None:
        seen.lines.append(
            "gradients came without a forward pass that the monitor saw; call the watched model "
            "itself, not a compiled or copied one"
        )


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"

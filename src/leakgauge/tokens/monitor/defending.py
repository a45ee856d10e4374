"""Gradients of a batch and of its records after a defense."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Grads
from leakgauge.defenses.defense import Defense, DefenseSettings
from leakgauge.gradients.factored.base import Factors

ROW_BYTES = 2**26
"""Memory of the records' gradients computed at once, in bytes."""


class DefendedGradients:
    """Applies a defense to the gradients of a monitor, with separate generators.

    Args:
        defense: a defense, or its settings, built for the size of the first batch.
        shapes: shapes of all trainable parameters, by name.
        seed: seed of the noise.
        summed: whether the loss is the sum over records, not their mean.

    Raises:
        InputError: the defense changes the model, learns from data, or names missing layers.
    """

    def __init__(
        self,
        defense: Defense | DefenseSettings,
        shapes: Mapping[str, torch.Size],
        *,
        seed: int,
        summed: bool,
    ) -> None:
        known = isinstance(defense, Defense | DefenseSettings)
        require(known, f"defense is {defense!r}; expected one such as leakgauge.Prune()")
        self._given, self._shapes, self._seed, self._summed = defense, shapes, seed, summed
        self._built: Defense | None = None
        trial = defense if isinstance(defense, Defense) else defense.build(batch_size=1)
        require(
            trial.task is None and trial.learn is None,
            f"defense {trial.name!r} changes the model or learns from data; "
            "train and watch the changed model",
        )
        for transform in (trial.per_example, trial.update):
            if transform is not None:
                transform.check(list(shapes))
        self.per_record = trial.per_example is not None

    def _of(self, batch_size: int) -> Defense:
        if self._built is None:
            given = self._given
            built = given if isinstance(given, Defense) else given.build(batch_size=batch_size)
            self._built = built
        return self._built

    def update(self, grads: Grads, step: int, batch_size: int) -> Grads:
        """Return the defended gradient of a batch, leaf ``[1, *p]``."""
        on_cpu = {name: leaf.cpu() for name, leaf in grads.items()}
        rng = torch_stream(self._seed, "update", step)
        return self._of(batch_size).update(on_cpu, [rng])

    def mean(self, found: Sequence[Factors], count: int, step: int) -> Grads:
        """Return the mean of the records' gradients, each changed by the defense."""
        total = {name: torch.zeros(1, *shape) for name, shape in self._shapes.items()}
        for changed, _ in self._rows(found, count, step):
            for name, leaf in changed.items():
                total[name] += leaf.sum(0, keepdim=True) / count
        return total

    def records(self, found: Sequence[Factors], count: int, step: int) -> Iterator[Grads]:
        """Yield chunks of the records' gradients, each defended as a batch of one."""
        for changed, rngs in self._rows(found, count, step):
            yield self._of(count).update(changed, rngs)

    def _rows(
        self, found: Sequence[Factors], count: int, step: int
    ) -> Iterator[tuple[Grads, list[torch.Generator]]]:
        """Yield the records' gradients, each changed by the defense, and a generator for each."""
        per_example = self._of(count).per_example
        each = 4 * sum(shape.numel() for shape in self._shapes.values())
        size = max(1, ROW_BYTES // max(1, each))
        for start in range(0, count, size):
            rows = slice(start, min(count, start + size))
            made: dict[str, Tensor] = {}
            for one in found:
                made |= one.rows(rows).gradient()
            many = rows.stop - rows.start
            # the gradient of a mean has a share of each record
            factor = 1 if self._summed else count
            grads: Grads = {
                name: made[name].cpu() * factor if name in made else torch.zeros(many, *shape)
                for name, shape in self._shapes.items()
            }
            rngs = [torch_stream(self._seed, "record", step, start + i) for i in range(many)]
            yield grads if per_example is None else per_example(grads, rngs), rngs

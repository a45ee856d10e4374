"""The inputs of an attack network: standardised components of an observation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from leakgauge.gradients.factored.base import Factors
from leakgauge.membership.adversaries.adversary import Needs
from leakgauge.membership.observation import Observed
from leakgauge.results.statistics import MOST_DEVIATIONS

SMALLEST = 1e-12
"""Smallest standard deviation used as a divisor."""

UNSCALED = ("outputs", "label")
"""Components that are within 0 and 1 if the labels are classes, and stay so."""

SMALLEST_NORM = 1e-37
"""Smallest norm used as a divisor of a float32 gradient."""


@dataclass(frozen=True)
class Inputs:
    """Which components of an observation an attack network sees.

    Attributes:
        outputs: the model's outputs.
        label: the true label, one-hot.
        loss: the loss.
        layers: number of last layers with gradients; 0 for none, -1 for all.
        hidden: number of last hidden layers with outputs.
        skip: number of last layers of both kinds to leave out.
        plain: whether to use the loss and the gradients themselves, as in the paper. Otherwise the
            loss is on a log scale, and a gradient is split into direction and log norm: both are
            smaller by many orders of magnitude for members.
    """

    outputs: bool = False
    label: bool = False
    loss: bool = False
    layers: int = 0
    hidden: int = 0
    skip: int = 0
    plain: bool = False

    @property
    def needs(self) -> Needs:
        """The observations that the attack needs."""
        layers, hidden = (
            count + self.skip if count > 0 else count for count in (self.layers, self.hidden)
        )
        return Needs(layers=layers, hidden=hidden)

    def seen(self, names: Sequence[str], count: int) -> Sequence[str]:
        """Return the names of ``count`` last observed layers, without skipped ones; -1 for all.

        >>> Inputs(skip=1).seen(["a", "b", "c"], 1), Inputs().seen(["a", "b"], -1)
        (['b'], ['a', 'b'])
        """
        end = len(names) - self.skip
        return names[0 if count < 0 else max(0, end - count) : max(0, end)]


@dataclass(frozen=True, eq=False)
class Scale:
    """Mean and standard deviation of a component over the records that an attack learns from."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, values: Tensor) -> "Scale":
        """Return the scale of values ``[n, d]``."""
        return cls(values.mean(0), values.std(0).clamp(min=SMALLEST))

    def __call__(self, values: Tensor) -> Tensor:
        """Return the standardised values, at most ``MOST_DEVIATIONS`` from 0.

        >>> Scale.of(torch.tensor([[0.0, 1.0], [0.0, 3.0]]))(torch.tensor([[0.1, 2.0]])).tolist()
        [[8.0, 0.0]]
        """
        standardised = (values - self.mean) / self.deviation
        return standardised.clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS)


@dataclass(frozen=True, eq=False)
class Gradient:
    """A layer's gradients at T snapshots, and their divisors.

    Attributes:
        each: gradients of n records, for each snapshot.
        norms: divisors ``[n, T]``: l2 norms, or ones.
        log_norms: standardised log norms as a separate input ``[n, T]``, or None.
    """

    each: Sequence[Factors]
    norms: Tensor
    log_norms: Tensor | None

    def rows(self, index: Tensor) -> "Gradient":
        """Return the part of the records at ``index``."""
        log_norms = None if self.log_norms is None else self.log_norms[index]
        return Gradient([one.rows(index) for one in self.each], self.norms[index], log_norms)


@dataclass(frozen=True, eq=False)
class Components:
    """The inputs of a network for n records.

    Attributes:
        flat: float32 inputs by name ``[n, d]``.
        gradients: gradients by layer.
    """

    flat: Mapping[str, Tensor]
    gradients: Mapping[str, Gradient]

    def __len__(self) -> int:
        leaves = [*self.flat.values(), *(one.norms for one in self.gradients.values())]
        return len(leaves[0])

    def rows(self, index: Tensor) -> "Components":
        """Return the part of the records at ``index``."""
        return Components(
            {name: leaf[index] for name, leaf in self.flat.items()},
            {name: one.rows(index) for name, one in self.gradients.items()},
        )


class Reader:
    """Makes components of observations, on the scale of the observations it was made with.

    Args:
        inputs: components to read.
        records: records to learn from, which set the scale.
    """

    def __init__(self, inputs: Inputs, records: Observed) -> None:
        self.inputs = inputs
        self._classes = records.classes > 0
        self._scales = {name: Scale.of(leaf) for name, leaf in self._flat(records).items()}

    def __call__(self, records: Observed) -> Components:
        """Return the components of records."""
        flat = {name: self._scaled(name, leaf) for name, leaf in self._flat(records).items()}
        log_norms = {name: flat.pop(_norm_of(name), None) for name in self._layers(records)}
        gradients = {
            name: Gradient(each, self._divisors(records.log_norms[name]), log_norms[name])
            for name, each in self._layers(records).items()
        }
        return Components(flat, gradients)

    def _flat(self, records: Observed) -> dict[str, Tensor]:
        inputs, flat = self.inputs, {}
        if inputs.outputs:
            flat["outputs"] = records.outputs.flatten(1)
        if inputs.label:
            flat["label"] = one_hot(records)
        if inputs.loss:
            flat["loss"] = records.log_loss.exp() if inputs.plain else records.log_loss
        for name in inputs.seen(list(records.hidden), inputs.hidden):
            flat[f"hidden {name}"] = records.hidden[name].flatten(1).double()
        if not inputs.plain:
            flat |= {_norm_of(name): records.log_norms[name] for name in self._layers(records)}
        return flat

    def _scaled(self, name: str, leaf: Tensor) -> Tensor:
        plain = self.inputs.plain or (self._classes and name in UNSCALED)
        return (leaf if plain else self._scales[name](leaf)).float()

    def _layers(self, records: Observed) -> Mapping[str, Sequence[Factors]]:
        names = self.inputs.seen(list(records.gradients), self.inputs.layers)
        return {name: records.gradients[name] for name in names}

    def _divisors(self, log_norms: Tensor) -> Tensor:
        norms = torch.zeros_like(log_norms) if self.inputs.plain else log_norms
        return norms.exp().clamp(min=SMALLEST_NORM).float()


def one_hot(records: Observed) -> Tensor:
    """Return the labels one-hot ``[n, classes]``, or numeric labels unchanged ``[n, d]``."""
    if records.classes:
        return functional.one_hot(records.labels, records.classes).double()
    return records.labels.reshape(len(records), -1).double()


def _norm_of(layer: str) -> str:
    return f"norm {layer}"

"""The update that one client sends, with its sign and scale."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.core.checks import (
    InputError,
    require,
    require_choice,
    require_count,
    require_positive,
)
from leakgauge.core.copying import copy_of
from leakgauge.core.names import model_way, renamed
from leakgauge.core.types import Grads, Params, Task
from leakgauge.training.catalog import OPTIMIZERS, SGD, own_rate
from leakgauge.training.payload import PayloadInput, read_payload
from leakgauge.training.recipe import Recipe
from leakgauge.training.state import check_names, check_numbers, check_shapes, in_types_of
from leakgauge.training.stored import read_parts, write_parts
from leakgauge.training.validity import Validity, gradient_change, measure

KINDS = ("gradient", "change", "weights")
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True, eq=False)
class Update:
    """The update that one client sends, by parameter name; leaf ``[*p]``.

    The update holds the tensors without their history; it does not copy them.

    Attributes:
        kind: ``"gradient"`` of the mean loss of a batch; ``"change"`` of the weights, after minus
            before; or the ``"weights"`` after local training.
        values: the tensors that the client sent.
        before: the client's initial weights, all trainable ones by name.
        lr: learning rate of the local steps; None if unknown. Then only a gradient has a known
            scale.
        steps: local steps.
        batch_size: records of a step; ``validity`` takes 1 for None.
        records: number of different records of the client.
        labels: labels of the records, int64 ``[n]`` or numbers ``[n, ...]``, if the client
            revealed them.
        buffers: other tensors that the client sent, such as running statistics.
        held: other tensors of the initial model: running statistics, frozen weights.
            ``in_place`` puts them into a model.
        optimizer: optimizer of the local steps, new for this update: a name of ``OPTIMIZERS`` with
            its settings, such as ``"sgd:momentum=0.9"`` or ``"adam:lr=0.001"``.
        rates: learning rate of each step, where a schedule changes it.

    Raises:
        InputError: the parts do not fit, or a value is not finite.

    >>> before = {"w": torch.tensor([1.0, 2.0])}
    >>> after = {"w": torch.tensor([0.5, 2.5])}
    >>> Update("weights", after, before, lr=0.25, steps=2).as_gradient()["w"].tolist()
    [[1.0, -1.0]]
    """

    kind: str
    values: Params
    before: Params
    lr: float | None = None
    steps: int = 1
    batch_size: int | None = None
    records: int | None = None
    labels: Tensor | None = None
    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    held: Mapping[str, Tensor] = field(default_factory=dict)
    optimizer: str = SGD
    rates: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        require_choice(self.kind, "kind of update", KINDS)
        require(len(self.before) > 0, "the update has no weights before; pass params_of(model)")
        check_names(self.values, self.before, "the update", "the weights before")
        check_numbers(self.before, "the weights before")
        check_numbers(self.values, "the update")
        own = {name: leaf.detach() for name, leaf in self.before.items()}
        sent = {name: self.values[name].detach().to(leaf.device) for name, leaf in own.items()}
        object.__setattr__(self, "before", own)
        object.__setattr__(self, "values", sent)
        self._check_counts()

    def _check_counts(self) -> None:
        require_count(self.steps, "steps")
        if self.kind == "gradient":
            require(self.steps == 1, f"a gradient has one step, not {self.steps}; pass a change")
        if self.lr is not None:
            require_positive(self.lr, "lr")
        # A file must not name code, which would run where the file is read.
        require_choice(self.optimizer.partition(":")[0], "optimizer of an update", OPTIMIZERS)
        _ = self.recipe
        for value, name in ((self.batch_size, "batch_size"), (self.records, "records")):
            if value is not None:
                require_count(value, name)
        if self.batch_size is not None and self.records is not None:
            seen = self.steps * self.batch_size
            require(
                self.batch_size <= self.records <= seen,
                f"{self.steps} steps of {self.batch_size} records do not go with {self.records} "
                f"records; expected {self.batch_size} to {seen}",
            )
        if self.labels is not None:
            codes = self.labels.dim() == 1 and self.labels.dtype == torch.int64
            sound = codes or (self.labels.dim() > 0 and self.labels.is_floating_point())
            came = f"labels are {list(self.labels.shape)} {self.labels.dtype}"
            require(sound, f"{came}; expected one int64 code, or numbers, for each record")

    def as_gradient(self) -> Grads:
        """Return the gradient at ``before`` of the mean loss of all records, leaf ``[1, *p]``.

        A gradient is returned unchanged. After plain SGD, a change or weights become (before -
        after) / (lr * steps), the mean of the gradients of all steps: exact for one step, else
        AGIC's one-batch approximation, whose validity ``warnings`` checks. After another optimizer
        see ``Recipe.as_gradient``.

        Raises:
            InputError: the learning rate is not known; only a gradient needs none.

        References:
            Xu et al., "AGIC: Approximate Gradient Inversion Attack on Federated Learning",
            SRDS 2022, Eq. 4.
        """
        return {name: leaf[None] for name, leaf in self._gradient().items()}

    @cached_property
    def recipe(self) -> Recipe | None:
        """The local steps; None if the learning rate is unknown, or a gradient was sent."""
        known = self.rates or self.lr is not None or own_rate(self.optimizer) is not None
        if self.kind == "gradient" or not known:
            return None
        return Recipe.named(self.optimizer, steps=self.steps, lr=self.lr, rates=self.rates)

    @property
    def is_zero(self) -> bool:
        """Whether the update changes nothing, so that it reveals nothing."""
        return not any(bool(leaf.any()) for leaf in self._difference().values())

    def drift(self) -> float:
        """Return the l2 norm of the weights' change over that of the weights."""
        return self.validity().drift

    def validity(
        self, task: Task | None = None, x: Tensor | None = None, y: Tensor | None = None
    ) -> Validity:
        """Return the distance of the update from one gradient step; it needs no private record.

        Args:
            task: with ``x`` and ``y``, the change of the gradient itself is measured.
            x: inputs ``[B, ...]`` of the right shape, not private ones. Noise works well; on a
                trained network it works better than public records, whose gradient is almost 0.
            y: targets ``[B]``.

        Raises:
            InputError: the update does not fit the task's model, or an argument is missing.
        """
        if task is not None and (own := self.fitted(task.model)) is not self:
            return own.validity(task, x, y)
        changed = None
        if x is not None or y is not None:
            if task is None or x is None or y is None:
                raise InputError("the change of the gradient needs a task, x and y; pass all three")
            changed = gradient_change(task, self.before, self.after(), x, y)
        return measure(
            self.before,
            self._change(),
            after=self.values if self.kind == "weights" else None,
            lr=self._mean_rate(),
            steps=self.steps,
            batch_size=self.batch_size or 1,
            gradient_change=changed,
        )

    def warnings(
        self, task: Task | None = None, x: Tensor | None = None, y: Tensor | None = None
    ) -> tuple[str, ...]:
        """Return reasons against ``as_gradient``, first a zero update; arguments: ``validity``."""
        same = "equals the weights before" if self.kind == "weights" else "is all zeros"
        nothing = f"the update {same}, so it reveals nothing; was the client trained?"
        return (*[nothing] * self.is_zero, *self.validity(task, x, y).warnings())

    def after(self) -> Params:
        """Return the client's final weights; the initial ones if it sent a gradient."""
        if self.kind == "weights":
            return self.values
        change = self._change()
        return {name: leaf + change[name].to(leaf.dtype) for name, leaf in self.before.items()}

    def check_fits(self, model: nn.Module) -> None:
        """Refuse a model whose trainable parameters have other names or shapes.

        Raises:
            InputError: a name is missing or unknown, or a shape differs.
        """
        wanted = {name: value for name, value in model.named_parameters() if value.requires_grad}
        check_names(self.before, wanted, "the update", type(model).__name__)

    def fitted(self, model: nn.Module) -> "Update":
        """Return the update under the model's names, in its type where that is finer.

        Raises:
            InputError: names or shapes of the trainable parameters do not fit the model.
        """
        way = model_way([*self.before, *self.held], model, "the update")
        own: Any = {}
        for part in ("values", "before", "buffers", "held"):
            sent = getattr(self, part)
            made = in_types_of(model, renamed(sent, way))
            own |= {part: made} if any(made.get(n) is not leaf for n, leaf in sent.items()) else {}
        fitted = replace(self, **own) if own else self
        fitted.check_fits(model)
        return fitted

    def in_place(self, model: nn.Module) -> nn.Module:
        """Return the model, or a copy with the tensors ``held`` of the client's initial model.

        Raises:
            InputError: the model has no such name, or another shape.
        """
        if not self.held:
            return model
        copied = copy_of(model)
        own = dict(copied.state_dict(keep_vars=True))
        check_shapes(self.held, own, "the update", type(model).__name__)
        with torch.no_grad():
            for name, leaf in self.held.items():
                own[name].copy_(leaf)
        return copied

    @classmethod
    def from_state_dicts(
        cls,
        before: Mapping[str, Tensor],
        after: Mapping[str, Tensor],
        *,
        lr: float | None = None,
        steps: int = 1,
        batch_size: int | None = None,
        records: int | None = None,
        model: nn.Module | None = None,
        optimizer: str = SGD,
        rates: tuple[float, ...] = (),
    ) -> "Update":
        """Return the update between a model's state dicts before and after local training.

        Args:
            before: as from ``model.state_dict()``; running statistics and integers go to ``held``,
                not to the weights.
            after: with the same names.
            model: its trainable parameters are the weights, also under the names of a wrapper;
                without it, all tensors but the statistics.

        The other arguments are attributes of ``Update``.

        Raises:
            InputError: as ``Update``.
        """
        if model is not None:
            before = renamed(before, model_way(before, model, "the state before"))
            after = renamed(after, model_way(after, model, "the state after"))
        trained = {name for name, leaf in before.items() if not _is_statistic(name, leaf)}
        if model is not None:
            trained &= {name for name, leaf in model.named_parameters() if leaf.requires_grad}
        aside = before.keys() - trained
        update = cls(
            "weights",
            {name: leaf for name, leaf in after.items() if name not in aside},
            {name: leaf for name, leaf in before.items() if name in trained},
            lr=lr,
            steps=steps,
            batch_size=batch_size,
            records=records,
            buffers={name: leaf for name, leaf in after.items() if name in aside},
            held={name: leaf for name, leaf in before.items() if name in aside},
            optimizer=optimizer,
            rates=rates,
        )
        if model is not None:
            update.check_fits(model)
        return update

    @classmethod
    def from_breaching(
        cls,
        server_payload: PayloadInput,
        shared_data: PayloadInput,
        model: nn.Module,
        *,
        lr: float | None = None,
        steps: int | None = None,
    ) -> "Update":
        """Return the update in dictionaries of breaching 0.1.2; arguments as ``read_payload``."""
        return cls(**read_payload(server_payload, shared_data, model, lr=lr, steps=steps))

    def save(self, path: Path | str) -> None:
        """Write a safetensors file whose header holds the learning rate and the counts."""
        write_parts(Path(path), {part.name: getattr(self, part.name) for part in fields(self)})

    @classmethod
    def load(cls, path: Path | str) -> "Update":
        """Return the update that ``save`` wrote.

        Raises:
            InputError: the file is missing, or does not hold an update.
        """
        return cls(**read_parts(Path(path)))

    def _difference(self) -> Params:
        """Return the values, weights as their difference from ``before``."""
        if self.kind != "weights":
            return self.values
        return {name: self.values[name] - leaf for name, leaf in self.before.items()}

    def _change(self) -> Params:
        """Return after minus before; zeros where the client sent a gradient."""
        if self.kind == "gradient":
            return {name: torch.zeros_like(leaf) for name, leaf in self.before.items()}
        return self._difference()

    def _gradient(self) -> Params:
        if self.kind == "gradient":
            return self.values
        recipe = self.recipe
        if recipe is None:
            raise InputError(
                f"lr is missing; an update of kind {self.kind!r} has no scale without the learning "
                "rate of local SGD, so it gives no gradient"
            )
        return recipe.as_gradient(self.before, self._difference())

    def _mean_rate(self) -> float | None:
        """Return the mean learning rate of all steps; None if unknown."""
        recipe = self.recipe
        if recipe is None or not recipe.rule.linear:
            return None
        return recipe.rates[0] if recipe.is_plain else -recipe.gain / self.steps


def _is_statistic(name: str, leaf: Tensor) -> bool:
    return name.rpartition(".")[2] in _STATISTICS or not leaf.is_floating_point()

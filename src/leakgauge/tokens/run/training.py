"""Trains the model with a decaying rate, and keeps it at each checkpoint."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from leakgauge.core.checks import require
from leakgauge.core.rng import derive, own_randomness, stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.runs.checkpoint import Checkpoint, restore_optimizer
from leakgauge.runs.question import Progress
from leakgauge.runs.spec import NONE
from leakgauge.runs.work import WorkFolder
from leakgauge.tokens.run.preparing import TokensPrepared, defense_of
from leakgauge.tokens.run.streaming import MOST, Stream
from leakgauge.tokens.spec import TimelineSpec
from leakgauge.tokens.words import CHECKPOINT, QUESTION, STREAM, STREAM_TO_CHECKPOINT
from leakgauge.training.catalog import own_rate, parse_optimizer
from leakgauge.training.local import Mover, StepCallback, in_evaluation, plain_sgd, train
from leakgauge.training.state import tensors_of, working_copy


class DecayingOptimizer:
    """The optimizer of a training; its state survives from sub-epoch to sub-epoch.

    The rate of sub-epoch ``s``, from 1, is ``lr * decay ** ((s - 1) // decay_every)``, as in
    StepLR.

    Args:
        spec: settings of the optimizer, its rate and its decay.
    """

    def __init__(self, spec: TimelineSpec) -> None:
        self._spec = spec
        self._make = parse_optimizer(spec.optimizer, lr=spec.lr)
        self._optimizer: Optimizer | None = None
        self._restored: Any = None

    @property
    def state(self) -> Any:
        """State of the optimizer; None without one."""
        if self._optimizer is not None:
            return self._optimizer.state_dict()["state"]
        return self._restored

    @state.setter
    def state(self, state: Any) -> None:
        self._optimizer, self._restored = None, state

    def at(self, step: int) -> Mover:
        """Return the mover of parameters in a sub-epoch, counted from 1."""
        factor = self._spec.decay ** ((step - 1) // self._spec.decay_every)
        make = self._make
        if make is None:
            return plain_sgd(self._spec.lr * factor)

        def over(leaves: Params) -> StepCallback:
            optimizer = make(list(leaves.values()))
            if self.state:
                restore_optimizer(optimizer, self.state)
            for group in optimizer.param_groups:
                group["lr"] *= factor
            self._optimizer = optimizer
            return _stepping(optimizer, leaves)

        return over


def _watched(mover: Mover, observed: Stream, task: Task, batches: Iterator[Tensor]) -> Mover:
    """Return the same mover, which first passes each step's gradient and batch to a stream.

    ``task`` has the model in evaluation mode, with its buffers at the start of the sub-epoch.
    """

    def watching(leaves: Params) -> StepCallback:
        step = mover(leaves)

        def both(gradient: Params) -> None:
            observed.observe(task, leaves, next(batches), gradient)
            step(gradient)

        return both

    return watching


def _stepping(optimizer: Optimizer, leaves: Params) -> StepCallback:
    def step(gradient: Params) -> None:
        for name, leaf in leaves.items():
            leaf.grad = gradient[name]
        optimizer.step()
        optimizer.zero_grad()

    return step


Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class ModelCheckpoint:
    """The model at a checkpoint.

    Attributes:
        step: number of sub-epochs of training before it.
        defense: defense of the training, in the users' notation.
        tensors: parameters and buffers by name.
        pairs: state of the stream of pairs up to it; empty without one.
    """

    step: int
    defense: str
    tensors: Tensors
    pairs: Tensors = field(default_factory=dict)

    def task(self, task: Task) -> tuple[Task, Params]:
        """Return the task with the model in evaluation mode at the checkpoint, and its weights."""
        own, leaves = working_copy(in_evaluation(task), self.tensors)
        return own, {name: leaf.detach() for name, leaf in leaves.items()}


def trained(
    prepared: TokensPrepared, text: str, folder: WorkFolder, progress: Progress
) -> list[ModelCheckpoint]:
    """Return the model at each checkpoint of a training under the defense ``text``.

    Kept checkpoints are read back.

    Raises:
        InputError: the training diverges.
    """
    spec = prepared.spec
    what = f"{QUESTION}: training" + ("" if text == NONE else f" under {text}")
    like, last = tensors_of(prepared.task), spec.checkpoints[-1]
    kept = {
        step: one
        for step in spec.checkpoints
        if (one := _kept(folder, text, step, like)) is not None
    }
    if len(kept) < len(spec.checkpoints):
        course = Checkpoint(folder, f"{text}/training")
        for at in _sub_epochs(prepared, text, course, have=set(kept)):
            progress.step(what, at.step, last)
            if at.step in spec.checkpoints:
                kept[at.step] = at
                folder.keep_state(f"{text}/pairs-{at.step:06d}", at.pairs, {})
                folder.keep_tensors(f"{text}/model-{at.step:06d}", at.tensors)
    progress.step(what, last, last)
    return [kept[step] for step in spec.checkpoints]


def _kept(folder: WorkFolder, text: str, step: int, like: Tensors) -> ModelCheckpoint | None:
    tensors = folder.tensors(f"{text}/model-{step:06d}", like=like)
    stored = folder.state(f"{text}/pairs-{step:06d}")
    if tensors is None or stored is None:
        return None
    return ModelCheckpoint(step, text, tensors, stored[0])


def _sub_epochs(
    prepared: TokensPrepared, text: str, course: Checkpoint, *, have: set[int]
) -> Iterator[ModelCheckpoint]:
    """Yield the model before the training and after each sub-epoch, from the last kept one on."""
    spec, data = prepared.spec, prepared.rows(prepared.private)
    observed = _stream_of(prepared, data)
    mover = DecayingOptimizer(spec)
    tensors: Tensors = tensors_of(prepared.task)
    step, kept = 0, course.read()
    if kept is not None and {one for one in spec.checkpoints if one <= kept["step"]} <= have:
        step = kept["step"]
        tensors = {name: kept["tensors"][name].to(leaf.device) for name, leaf in tensors.items()}
        mover.state = kept["optimizer"]
        if observed is not None:
            observed.restore(kept["pairs"], seen=step * spec.iterations)
    else:
        yield ModelCheckpoint(0, text, tensors)
    while step < spec.checkpoints[-1]:
        step += 1
        with one_thread():
            tensors = _sub_epoch(prepared, data, tensors, text, step, mover, observed)
        require(
            all(bool(torch.isfinite(leaf).all()) for leaf in tensors.values()),
            f"training diverged in sub-epoch {step} (parameters are not finite); lower the "
            f"learning rate, now {own_rate(spec.optimizer) or spec.lr:g}",
        )
        pairs = {} if observed is None else observed.state()
        yield ModelCheckpoint(step, text, tensors, pairs)
        if course.due:  # after the checkpoint itself was kept
            course.keep(
                {"step": step, "tensors": dict(tensors), "optimizer": mover.state, "pairs": pairs}
            )


def _sub_epoch(
    prepared: TokensPrepared,
    data: Dataset,
    tensors: Tensors,
    text: str,
    step: int,
    mover: DecayingOptimizer,
    observed: Stream | None,
) -> Tensors:
    spec, over = prepared.spec, mover.at(step)
    batches = list(_batches(spec, len(data), step))
    if observed is not None:
        seen_by = ModelCheckpoint(step - 1, text, tensors).task(prepared.task)[0]
        over = _watched(over, observed, seen_by, (data.x[batch] for batch in batches))
    defense = None if text == NONE else defense_of(spec, text)
    seed = derive(spec.seed, QUESTION, "noise", text, step)
    with own_randomness(derive(seed, "model"), data.y.device):
        return train(
            prepared.task, tensors, data, batches, over=over, defense=defense, noise_seed=seed
        )


def _batches(spec: TimelineSpec, count: int, step: int) -> Iterator[Tensor]:
    """Yield the batches of a sub-epoch; a pass over the records may span sub-epochs."""
    size = min(spec.batch_size, count)
    in_pass = count // size
    first = (step - 1) * spec.iterations
    orders: dict[int, Tensor] = {}
    for number in range(first, first + spec.iterations):
        whole, place = divmod(number, in_pass)
        if whole not in orders:
            drawn = stream(spec.seed, QUESTION, "pass", whole).permutation(count)
            orders = {whole: torch.from_numpy(drawn)}
        yield orders[whole][place * size : (place + 1) * size]


def _stream_of(prepared: TokensPrepared, data: Dataset) -> Stream | None:
    spec = prepared.spec
    if spec.pairs == CHECKPOINT:
        return None
    whole = spec.pairs == STREAM_TO_CHECKPOINT
    return Stream(
        in_evaluation(prepared.task),
        data.x,
        features=prepared.features,
        layers=prepared.layers,
        width=spec.width,
        # checkpoint batches need the same sketches
        seed=derive(spec.seed, QUESTION, "pairs" if whole else STREAM),
        every=-(-spec.checkpoints[-1] * spec.iterations // MOST) if whole else 1,
    )

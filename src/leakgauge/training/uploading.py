"""What one participant uploads after its turn in a round."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.core.types import Params, Task, all_finite
from leakgauge.training.catalog import SGD
from leakgauge.training.local import defended, gradient_alone, train
from leakgauge.training.participant import Turn
from leakgauge.training.protocol import FEDSGD, STEPS, Protocol
from leakgauge.training.state import Tensors
from leakgauge.training.update import Update


def upload_of(
    task: Task, received: Tensors, turn: Turn, protocol: Protocol, *, who: str, number: int
) -> Update:
    """Return what a participant uploads: its weights, or with ``"fedsgd"`` its gradient.

    Args:
        task: the model and its loss; the module is not changed.
        received: parameters and buffers from the server.
        turn: what the participant brings to the round.
        protocol: what it does.
        who: trains, for messages, such as ``"training of participant 2"``.
        number: of the round.

    Returns:
        The update. Its ``buffers`` are the model's after training, ``held`` those before.

    Raises:
        InputError: the training diverges, or the defense does not fit the protocol.
    """
    at_steps = protocol.kind == FEDSGD or protocol.defended == STEPS
    _refuse_per_record(turn, at_steps=at_steps)
    rows = [one.to(turn.data.y.device) for one in protocol.batches(len(turn.data), rng=turn.rng)]
    gradient: dict[str, Tensor] = {}
    mover = gradient_alone(gradient) if protocol.kind == FEDSGD else turn.mover or protocol.mover()
    with drawing(turn.model_seed, turn.data.x.device):
        after = train(
            task,
            received,
            turn.data,
            rows,
            over=mover,
            defense=turn.defense if at_steps else None,
            noise_seed=turn.noise_seed,
        )
    _refuse_diverged({**after, **gradient}, turn, protocol, f"{who} diverged in round {number}")
    update = _update(task, received, after, gradient, turn, protocol, rows)
    return update if at_steps else _defended(update, turn)


def _update(
    task: Task,
    received: Tensors,
    after: Tensors,
    gradient: Params,
    turn: Turn,
    protocol: Protocol,
    rows: Sequence[Tensor],
) -> Update:
    trained = [name for name, leaf in task.model.named_parameters() if leaf.requires_grad]
    aside = [name for name in after if name not in trained]
    lr, optimizer = (None, SGD) if turn.mover is not None else protocol.told
    return Update(
        "gradient" if gradient else "weights",
        gradient or {name: after[name] for name in trained},
        {name: received[name] for name in trained},
        lr=lr,
        steps=len(rows),
        batch_size=protocol.size(len(turn.data)),
        records=min(len(turn.data), sum(map(len, rows))),
        buffers={name: after[name] for name in aside},
        held={name: received[name] for name in aside},
        optimizer=optimizer,
    )


def _defended(update: Update, turn: Turn) -> Update:
    """Return the change of the weights after the defense, in place of the weights."""
    change = {name: update.values[name] - leaf for name, leaf in update.before.items()}
    noise = torch.Generator(turn.data.y.device).manual_seed(turn.noise_seed)
    return replace(update, kind="change", values=defended(change, turn.defense, noise))


@contextmanager
def drawing(seed: int, device: torch.device) -> Iterator[None]:
    """Let a model draw from torch's own generators by a seed, and restore them afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _refuse_per_record(turn: Turn, *, at_steps: bool) -> None:
    require(
        at_steps or turn.defense.per_example is None,
        f"{turn.defense.name!r} changes each record's gradient, and the upload of several steps "
        'has none; take defended="steps" or another defense',
    )


def _refuse_diverged(tensors: Tensors, turn: Turn, protocol: Protocol, what: str) -> None:
    if all_finite(tensors.values()):
        return
    name = turn.defense.name
    weaker = "" if name == "none" else f", or weaken the defense {name!r}"
    raise InputError(
        f"{what} (parameters are not finite); lower the learning rate, now {protocol.rate:g}"
        f"{weaker}"
    )

"""The last tokens of a causal model's sequences, and the check of a whole recovered batch."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from leakgauge.core.types import Grads, Task
from leakgauge.inversion.text.layers import embedding_name, head_name
from leakgauge.inversion.text.recovered import RecoveredText

UNKNOWN = -1
SURE = 0.9
"""From this value on, of 1, least squares names the last token of a sequence."""

COMBINATIONS = 256
"""Largest number of endings that are tried by their gradient."""

MOST_ROWS = 16
"""Largest number of sequences of which one is left out, or taken once more, on trial."""


def complete(
    task: Task, grads: Grads, found: RecoveredText, *, labels: Tensor | None
) -> RecoveredText:
    """Return recovered sequences with their last tokens, and the distance of their gradient.

    The last token of a sequence is a target alone: the gradient of the output layer is the sum,
    over positions, of (probability - target) times the layer's input. All but the last targets are
    known by then, so the last ones solve a linear system. Tokens of an embedding that is tied to
    the output layer are found so only where they are no inputs; the others are tried.

    Args:
        task: on a model that is free to use.
        grads: the observed gradient, leaf ``[1, *p]``.
        found: sequences, of a causal task without their last tokens.
        labels: of a task of classes, if they are known ``[B]``.
    """
    device = next(task.model.parameters()).device
    rows = [list(one) for one in found.sequences]
    with torch.no_grad():
        outputs = task.model(torch.tensor([rows[0]], device=device))
    if outputs.dim() == 3:
        residual, best = _best_batch(task, grads, rows, found.allowed)
        return _with_note(replace(found, sequences=_frozen(best), residual=residual))
    if labels is None or len(labels) != len(rows):
        return found
    orders = itertools.islice(itertools.permutations(labels.tolist()), COMBINATIONS)
    named = [torch.tensor(one, device=device) for one in dict.fromkeys(orders)]
    distances = [_residual(task, grads, rows, own) for own in named]
    known = [one for one in distances if one is not None]
    return _with_note(replace(found, residual=min(known) if known else None))


def _best_batch(
    task: Task, grads: Grads, rows: list[list[int]], allowed: float
) -> tuple[float | None, list[list[int]]]:
    """The sequences with their last tokens, as a batch whose gradient is near the observed one.

    While it is not, a sequence is left out or taken once more that brings it nearest.
    """
    residual, batch = _ended(task, grads, rows)
    while residual is not None and residual >= allowed and len(rows) <= MOST_ROWS:
        fewer = [rows[:i] + rows[i + 1 :] for i in range(len(rows))] if len(rows) > 1 else []
        options = [*fewer, *([*rows, row] for row in rows)]
        tried = [(*_ended(task, grads, one), one) for one in options]
        scored = [one for one in tried if one[0] is not None]
        if not scored:
            break
        nearest, ended, chosen = min(scored, key=lambda one: one[0] or 0.0)
        if nearest is None or nearest >= residual:
            break
        residual, batch, rows = nearest, ended, chosen
    return residual, batch


def _ended(task: Task, grads: Grads, rows: list[list[int]]) -> tuple[float | None, list[list[int]]]:
    """The sequences with their likeliest last tokens, and the residual of their gradient."""
    endings = _endings(task, grads, rows)
    if math.prod(len(one) for one in endings) > COMBINATIONS:
        endings = [one if len(one) == 1 else [UNKNOWN] for one in endings]
    batches = [
        [[*row, end] for row, end in zip(rows, ends, strict=True)]
        for ends in itertools.product(*endings)
    ]
    scored = [(_residual(task, grads, batch), batch) for batch in batches]
    return min(scored, key=lambda pair: math.inf if pair[0] is None else pair[0])


def _with_note(found: RecoveredText) -> RecoveredText:
    if found.stopped or found.residual is None or found.confirmed:
        return found
    return replace(
        found,
        stopped=(
            f"the sequences found have another gradient than the batch (distance "
            f"{found.residual:.2g} of 1): one is missing, or is in the batch several times"
        ),
    )


def _endings(task: Task, grads: Grads, rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """The tokens that each sequence may end with; ``[-1]`` where nothing says it."""
    name = head_name(task.model)
    leaf = f"{name}.weight"
    tied = _tied_name(task.model, leaf)
    if tied is not None and tied in grads:
        leaf = tied
    if leaf not in grads:
        return [[UNKNOWN] for _ in rows]
    head = task.model.get_submodule(str(name))
    inputs, errors, last = [], [], []
    for row in rows:
        tokens = torch.tensor([list(row)], device=grads[leaf].device)
        seen: list[Tensor] = []
        handle = head.register_forward_pre_hook(lambda _, given, seen=seen: seen.append(given[0]))
        try:
            with torch.no_grad():
                probability = task.model(tokens).double().softmax(dim=-1)[0]
        finally:
            handle.remove()
        h = seen[0][0].double()
        probability[torch.arange(len(row) - 1), tokens[0, 1:]] -= 1
        inputs.append(h)
        errors.append(probability)
        last.append(h[-1])
    n = sum(len(row) for row in rows)
    known = torch.cat(errors).T @ torch.cat(inputs)
    left = known - n * grads[leaf][0].double()
    read = torch.ones(len(left), dtype=torch.bool, device=left.device)
    if leaf == tied:
        read[torch.tensor(sorted({token for row in rows for token in row}))] = False
    shares = torch.linalg.lstsq(torch.stack(last).T, left.T).solution
    found = []
    for own in shares:
        value, token = (own * read).max(dim=0)
        inputs_of_batch = sorted({one for row in rows for one in row})
        unsure = inputs_of_batch if leaf == tied else [UNKNOWN]
        found.append([int(token)] if float(value) > SURE else unsure)
    return found


def _residual(
    task: Task, grads: Grads, rows: Sequence[Sequence[int]], labels: Tensor | None = None
) -> float | None:
    """Distance of the gradient of a batch from the observed one, of 1; None if it has gaps."""
    if any(token < 0 for row in rows for token in row):
        return None
    leaves = {name: leaf for name, leaf in task.model.named_parameters() if name in grads}
    device = next(iter(leaves.values())).device
    longest = max(len(row) for row in rows)
    if labels is not None and any(len(row) != longest for row in rows):
        return None
    padded = [[*row, *[0] * (longest - len(row))] for row in rows]
    ignored = [[*row, *[-100] * (longest - len(row))] for row in rows]
    targets = torch.tensor(ignored, device=device) if labels is None else labels
    with torch.enable_grad():
        loss = task.mean_loss(task.model(torch.tensor(padded, device=device)), targets)
    own = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    apart, whole = 0.0, 0.0
    for name, value in zip(leaves, own, strict=True):
        seen = grads[name][0].double()
        apart += float((seen if value is None else seen - value.double()).square().sum())
        whole += float(seen.square().sum())
    return (apart / whole) ** 0.5 if whole else None


def _tied_name(model: nn.Module, leaf: str) -> str | None:
    """The name of the embedding, where the output layer shares its weight."""
    every = dict(model.named_parameters(remove_duplicate=False))
    name = embedding_name(model)
    return name if leaf in every and every[leaf] is every[name] else None


def _frozen(rows: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in rows)

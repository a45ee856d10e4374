"""The last tokens of a causal model's sequences, and the check of a whole recovered batch."""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.core.losses import REFUSALS
from leakgauge.core.precision import precision_of, relative_tolerance
from leakgauge.core.types import Grads, Task
from leakgauge.inversion.text.layers import embedding_name, embedding_of, head_name
from leakgauge.inversion.text.recovered import RecoveredText

UNKNOWN = -1
"""Stands for a token that could not be read."""

SURE = 0.9
"""Smallest least-squares share, of 1, that identifies the last token of a sequence."""

ORDERS = 256
"""Largest number of label orders to try."""

MOST_ROWS = 16
"""Largest number of sequences for which omissions and repetitions are tried."""

ENTRIES = 16
"""Number of gradient entries used for each unknown number."""

FLAT = 1e-6
"""Smallest singular value, relative to the largest, of a direction that can be seen."""

ANOTHER_LOSS = (
    "the loss is not the mean cross entropy of the next token, from which last tokens are read, so "
    "these are missing and nothing is confirmed"
)

TokenRows = list[list[int]]
Counts = Mapping[tuple[int, ...], int]


def complete(
    task: Task,
    grads: Grads,
    found: RecoveredText,
    *,
    labels: Tensor | None,
    padding: int | None = None,
) -> RecoveredText:
    """Return recovered sequences with their last tokens, and the distance of their gradient.

    Args:
        task: task with a private copy of the model.
        grads: the observed gradient, leaf ``[1, *p]``.
        found: sequences, without their last tokens if the task is causal.
        labels: labels ``[B]`` of a task of classes, if they are known.
        padding: token before the sequences that are padded on the left; it is no target.
    """
    device = next(task.model.parameters()).device
    rows = [list(one) for one in found.sequences]
    with torch.no_grad():
        outputs = task.outputs(torch.tensor([rows[0]], device=device))
    if outputs.dim() == 3 and not _is_next_token_loss(task, device):
        named = tuple((*row, UNKNOWN) for row in rows)
        return replace(found, sequences=named, stopped=ANOTHER_LOSS)
    if outputs.dim() == 3:
        residual, best = _best_batch(task, grads, rows, found.allowed, padding)
        named = tuple(tuple(row) for row in best)
        return _with_note(replace(found, sequences=named, residual=residual))
    if labels is None or len(labels) != len(rows):
        return found
    orders = itertools.islice(itertools.permutations(labels.tolist()), ORDERS)
    targets = [torch.tensor(one, device=device) for one in dict.fromkeys(orders)]
    distances = [_residual(task, grads, rows, own) for own in targets]
    known = [one for one in distances if one is not None]
    return _with_note(replace(found, residual=min(known) if known else None))


def _is_next_token_loss(task: Task, device: torch.device) -> bool:
    """Return whether the loss is the mean cross entropy of the next token.

    It is tried on tokens 0 and 1, then on 2 and 3: one of them may be padding, which does not
    count.
    """
    tokens = torch.tensor([[1, 0, 1], [0, 1, 1]], device=device)
    words = len(embedding_of(task.model))
    return any(_agrees(task, (tokens + shift) % words) for shift in (0, 2))


def _agrees(task: Task, tokens: Tensor) -> bool:
    with torch.no_grad():
        outputs = task.outputs(tokens)
        try:
            found = task.mean_loss(outputs, tokens)
        except REFUSALS:
            return False
        wanted = functional.cross_entropy(outputs[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    rtol = relative_tolerance(outputs.dtype, 1e-4)
    return found.shape == wanted.shape and torch.allclose(found, wanted, rtol=rtol)


def _best_batch(
    task: Task, grads: Grads, rows: TokenRows, allowed: float, padding: int | None
) -> tuple[float | None, TokenRows]:
    """Return the residual and the sequences, with last tokens, of a batch near the observed one.

    While its gradient differs, leave out or repeat the sequence that brings it nearest.
    """
    residual, batch = _ended(task, grads, rows, padding)
    while residual >= allowed and len(rows) <= MOST_ROWS:
        fewer = [rows[:i] + rows[i + 1 :] for i in range(len(rows))] if len(rows) > 1 else []
        options = [*fewer, *([*rows, row] for row in rows)]
        tried = [(*_ended(task, grads, one, padding), one) for one in options]
        nearest, ended, chosen = min(tried, key=lambda one: one[0])
        if nearest >= residual:
            break
        residual, batch, rows = nearest, ended, chosen
    return residual if math.isfinite(residual) else None, batch


def _ended(
    task: Task, grads: Grads, rows: TokenRows, padding: int | None
) -> tuple[float, TokenRows]:
    """Return the residual of a batch's gradient, or infinity, and the batch with last tokens.

    Copies of a sequence are assumed to have the same last token.
    """
    name = head_name(task.model)
    leaf = f"{name}.weight"
    counts = Counter(tuple(row) for row in rows)
    quiet = {row: max(0, leading(row, padding) - 1) for row in counts}
    if name is None:
        ends = [UNKNOWN] * len(counts)
    elif leaf in grads and leaf != embedding_name(task.model):
        ends = _ends_by_head(task, grads[leaf][0], task.model.get_submodule(name), counts, quiet)
    else:
        ends = _ends_by_slopes(task, grads, task.model.get_submodule(name), counts, quiet)
    named = dict(zip(counts, ends, strict=True))
    batch = [[*row, named[tuple(row)]] for row in rows]
    residual = _residual(task, grads, batch, padding=padding)
    return (math.inf if residual is None else residual), batch


def leading(row: Sequence[int], padding: int | None) -> int:
    """Return the number of tokens of padding at the beginning of a sequence.

    >>> leading((0, 0, 5, 0), 0), leading((0, 5), None)
    (2, 0)
    """
    return sum(1 for _ in itertools.takewhile(lambda token: token == padding, row))


def _ends_by_head(
    task: Task, gradient: Tensor, head: nn.Module, rows: Counts, quiet: Counts
) -> list[int]:
    """Return the last tokens, from the gradient ``[V, d]`` of the output layer.

    It is the mean over predicted tokens of (probability - target) times the layer's input. All
    targets but the last ones are known by then, so the last ones solve a linear system.
    """
    known, last = torch.zeros_like(gradient, dtype=torch.float64), []
    for row, count in rows.items():
        with torch.no_grad():
            inputs, logits = _into(task, head, row)
        errors = logits.double().softmax(dim=-1)
        errors[torch.arange(len(row) - 1), torch.tensor(row[1:], dtype=torch.int64)] -= 1
        errors[: quiet[row]] = 0
        known += count * errors.T @ inputs.double()
        last.append(count * inputs[-1].double())
    left = known - _tokens(rows, quiet) * gradient.double()
    shares = torch.linalg.lstsq(torch.stack(last).T, left.T).solution
    values, tokens = shares.max(dim=1)
    pairs = zip(values.tolist(), tokens.tolist(), strict=True)
    return [token if value > SURE else UNKNOWN for value, token in pairs]


def _ends_by_slopes(task: Task, grads: Grads, head: Any, rows: Counts, quiet: Counts) -> list[int]:
    """Return the last tokens, from the gradients of inner layers such as adapters.

    The gradient less the part of the known targets is, for each sequence, the slopes of the output
    layer's last input times d unknown numbers. These are the error that the output layer sends
    back, which identifies a row of its weight. The last layers are enough if there are many.
    """
    weight = head.weight.detach().double()
    first = embedding_name(task.model)
    leaves, unknown = {}, weight.numel() // len(weight) * len(rows)
    for name, leaf in reversed(list(task.model.named_parameters())):
        if name in grads and name != first and leaf is not head.weight:
            leaves[name] = leaf
        if sum(one.numel() for one in leaves.values()) > ENTRIES * unknown:
            break
    if not leaves:
        return [UNKNOWN] * len(rows)
    own, n, d = list(leaves.values()), _tokens(rows, quiet), weight.shape[1]

    def flat(values: Sequence[Tensor | None]) -> Tensor:
        pairs = zip(values, own, strict=True)
        parts = [torch.zeros_like(leaf) if one is None else one for one, leaf in pairs]
        return torch.cat([one.flatten() for one in parts]).double()

    left = flat([grads[name][0] for name in leaves])
    slopes: list[Tensor] = []
    expected = []
    for row, count in rows.items():
        with torch.enable_grad():
            inputs, logits = _into(task, head, row)
            if len(row) > 1:
                targets = torch.tensor(row[1:], device=logits.device)
                skip = quiet[row]
                loss = (
                    functional.cross_entropy(logits[skip:-1], targets[skip:], reduction="sum") / n
                )
                left = left - count * flat(torch.autograd.grad(loss, own, **_MORE))
            each = [torch.autograd.grad(value, own, **_MORE) for value in inputs[-1]]
        slopes.append(count * torch.stack([flat(one) for one in each]))
        expected.append(logits[-1].detach().double().softmax(dim=0) @ weight)
    stacked = torch.cat(slopes)
    # Noise of rounding would fill the directions that a coarse gradient does not show.
    flat_below = relative_tolerance(precision_of([leaf[0] for leaf in grads.values()]), 0.0)
    flat_below = max(FLAT, flat_below)
    # On the CPU: a GPU has no driver for matrices without full rank.
    given = stacked.T.cpu(), left[:, None].cpu()
    solved = torch.linalg.lstsq(*given, rcond=flat_below, driver="gelsd").solution
    sent = solved.to(left.device)
    named = torch.stack(expected) - n * sent.reshape(len(rows), d)
    ends = []
    for of_row, one in zip(slopes, named, strict=True):
        # A last layer norm hides one direction; only the others are compared.
        directions, values, _ = torch.linalg.svd(of_row, full_matrices=False)
        seen = directions[:, values > flat_below * values[0]]
        apart, token = ((weight - one) @ seen).norm(dim=1).min(dim=0)
        sure = bool(apart < (1 - SURE) * (weight[token] @ seen).norm())
        ends.append(int(token) if sure else UNKNOWN)
    return ends


def _tokens(rows: Counts, quiet: Counts) -> int:
    """Return the number of predicted tokens, without the ``quiet`` first places of each row."""
    return sum(count * (len(row) - quiet[row]) for row, count in rows.items())


_MORE: dict[str, Any] = {"retain_graph": True, "allow_unused": True}


def _into(task: Task, head: Any, row: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return inputs ``[t, d]`` and outputs ``[t, V]`` of the output layer for one sequence."""
    seen: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        logits = task.outputs(torch.tensor([list(row)], device=head.weight.device))
    finally:
        handle.remove()
    return seen[-1][0], logits[0]  # a single record is tried out before


def _residual(
    task: Task,
    grads: Grads,
    rows: Sequence[Sequence[int]],
    labels: Tensor | None = None,
    *,
    padding: int | None = None,
) -> float | None:
    """Return the relative distance of a batch's gradient from the observed one; None with gaps."""
    longest = max(len(row) for row in rows)
    uneven = any(len(row) != longest for row in rows)
    if any(token < 0 for row in rows for token in row) or (labels is not None and uneven):
        return None
    leaves = {name: leaf for name, leaf in task.model.named_parameters() if name in grads}
    device = next(iter(leaves.values())).device
    padded = [[*row, *[0] * (longest - len(row))] for row in rows]
    before = [leading(row, padding) for row in rows]
    ignored = [
        [*[-100] * skip, *row[skip:], *[-100] * (longest - len(row))]
        for skip, row in zip(before, rows, strict=True)
    ]
    targets = torch.tensor(ignored, device=device) if labels is None else labels
    with torch.enable_grad():
        loss = task.mean_loss(task.outputs(torch.tensor(padded, device=device)), targets)
    own = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    apart, whole = 0.0, 0.0
    for name, value in zip(leaves, own, strict=True):
        seen = grads[name][0].double()
        apart += float((seen if value is None else seen - value.double()).square().sum())
        whole += float(seen.square().sum())
    return (apart / whole) ** 0.5 if whole else None


def _with_note(found: RecoveredText) -> RecoveredText:
    if found.stopped:
        return found
    if any(UNKNOWN in row for row in found.sequences):
        return replace(found, stopped="the gradient does not say the last token of a sequence")
    if found.residual is None or found.confirmed:
        return found
    note = (
        "the sequences found have another gradient than the batch (relative distance "
        f"{found.residual:.2g}): one is missing, wrong, padded, or in the batch several times"
    )
    return replace(found, stopped=note)

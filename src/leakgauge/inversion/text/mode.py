"""What a gradient still shows where the span check reads no sequence: its mode, and its tokens."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from leakgauge.core.checks import InputError
from leakgauge.core.precision import is_coarse
from leakgauge.core.types import Grads, Task
from leakgauge.inversion.text.embeddings import read_single, recover_tokens
from leakgauge.inversion.text.endings import UNKNOWN, leading
from leakgauge.inversion.text.layers import head_name
from leakgauge.inversion.text.recovered import RecoveredText

ZEROS = 5e-4
"""Smallest share of exact zeros that tells dropout; sums in float32 give hardly any."""

SINGLE = (
    "the gradients of the embeddings of tokens and positions show a single text in its order, "
    "which dropout does not hide"
)

UNKNOWN_CHANGE = "the gradient was changed, or not taken at these weights"


def reason_of_change(model: nn.Module, grads: Grads, precision: torch.dtype) -> str:
    """Return why the inputs of a model may not lie in the spans of a gradient.

    Dropout behind an embedding sets a share of the numbers of its gradient to exactly 0, which
    tells train mode.

    Args:
        model: model with its layers of dropout.
        grads: one gradient, leaf ``[1, *p]``.
        precision: precision of the gradient; rounding in a coarse one gives zeros, too.
    """
    rates = [one.p for one in model.modules() if isinstance(one, nn.Dropout) and one.p > 0]
    if not rates:
        return UNKNOWN_CHANGE
    inner, share = _zeros(model, grads)
    if not is_coarse(precision) and share > max(ZEROS, 10 * inner):
        return (
            f"it was taken in train mode: {share:.0%} of the numbers of an embedding's gradient "
            f"are exactly 0, as dropout of {max(rates):g} makes them, and the layers then read "
            "other inputs than those of any token"
        )
    return (
        f"the gradient was taken in train mode (the model has dropout of {max(rates):g}), it was "
        "changed, or not taken at these weights"
    )


def _zeros(model: nn.Module, grads: Grads) -> tuple[float, float]:
    """Return the largest share of exact zeros in rows with a gradient, elsewhere and in embeddings.

    A gradient that was pruned has zeros everywhere.
    """
    shares = {False: [0.0], True: [0.0]}
    for name, part in model.named_modules():
        leaf = grads.get(f"{name}.weight")
        if leaf is not None and leaf.dim() == 3:
            rows = leaf[0][leaf[0].any(dim=1)]
            share = float((rows == 0).double().mean()) if len(rows) else 0.0
            shares[isinstance(part, nn.Embedding)].append(share)
    return max(shares[False]), max(shares[True])


def with_the_rest(found: RecoveredText, task: Task, grads: Grads) -> RecoveredText:
    """Return an incomplete result with what embeddings show: a single text, or a set of tokens."""
    if not found.stopped:
        return found
    text = () if found.sequences else read_single(task, grads)
    if text:
        last = () if head_name(task.model) is None else (UNKNOWN,)
        offered = f"{found.stopped}; {SINGLE}{' but for its last token' if last else ''}"
        return replace(found, sequences=((*text, *last),), tokens=text, stopped=offered)
    try:
        tokens = recover_tokens(task, grads)
    except InputError:
        tokens = ()
    if not tokens:
        return found
    offered = f"{found.stopped}; the embedding's gradient still names {len(tokens)} tokens"
    return replace(found, tokens=tokens, stopped=offered)


def masking(model: nn.Module, padding: int | None) -> None:
    """Let a private model of ``hugging_face_task`` mask padding, as training does."""
    if padding is not None and hasattr(model, "padding"):
        setattr(model, "padding", padding)  # noqa: B010  modules know only tensors and modules


def later(everywhere: Sequence[Sequence[int]], sequences: Sequence[Sequence[int]]) -> str:
    """Return one line if tokens that are in no sequence pass at some later position; else nothing.

    >>> later([[], [5]], [])[:37], later([[5], [6]], [[5, 6]])
    ('1 tokens pass the first check, but on', '')
    """
    known = {token for row in sequences for token in row}
    left = {token for names in everywhere for token in names} - known
    if not left:
        return ""
    return (
        f"{len(left)} tokens pass the first check, but only at later positions than those of the "
        "sequences found, as in texts that are padded on the left: name their token by padding="
    )


def sides(found: RecoveredText, padding: int | None) -> list[RecoveredText]:
    """Return the ways in which sequences may be padded: as they were found, and all on the left.

    A model without absolute positions shows a text in the same way at each position, so it is
    found at many; then the first one counts, or those at which all texts end together.

    >>> found = RecoveredText(sequences=((5, 6, 7), (8, 9), (0, 8, 9)))
    >>> [one.sequences for one in sides(found, 0)]
    [((5, 6, 7), (8, 9)), ((5, 6, 7), (0, 8, 9))]
    """
    if padding is None:
        return [found]
    starts: dict[tuple[int, ...], list[int]] = {}
    for row in found.sequences:
        skip = leading(row, padding)
        starts.setdefault(row[skip:], []).append(skip)
    if any(len(known) > 1 for known in starts.values()):  # later ones are cut off at the last place
        starts = {
            row: known
            for row, known in starts.items()
            if not any(len(other) > len(row) and other[: len(row)] == row for other in starts)
        }
    longest = max(min(known) + len(row) for row, known in starts.items())
    ways = [{row: min(known) for row, known in starts.items()}]
    for end in (longest, longest + 1):  # one token of padding before all texts is as good as more
        ways.append(
            {
                row: end - len(row) if end - len(row) in known else min(known)
                for row, known in starts.items()
            }
        )
    made = [tuple((padding,) * skip + row for row, skip in way.items()) for way in ways]
    return [replace(found, sequences=one) for one in dict.fromkeys(made)]

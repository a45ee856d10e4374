"""Tokens, and the order of a single text, from the gradients of a model's embeddings.

A token's row in the gradient of its embedding is the sum of ``dL/dx`` over the places where it
stands; a position's row is that sum over the texts at the position. Dropout changes ``dL/dx``, but
not these sums, so they hold in train mode, too, whatever the masks.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError, require
from leakgauge.core.precision import name_of, precision_of, relative_tolerance
from leakgauge.core.types import Grads, Task
from leakgauge.inversion.text.layers import Span, embedding_name, embedding_of, span_of

POSITIONS = ("wpe", "position_embeddings", "position_embedding", "embed_positions")
"""Names of the embeddings of absolute positions in models of transformers."""

OUTSIDE = 3e-5
"""Largest distance from a span that counts as none, relative to a row's length; more for a coarse
gradient."""

HIDING = 0.1
"""Distance from a span below which a row may be that of a token that was read. Seen in 160 batches
of small GPT-2s: 0.2 or more for such rows, 4e-6 or less for others, in float32; down to 4e-4 where
a batch has as many tokens as the model has dimensions."""

CLEAR = 0.05
"""Largest error of a number that counts as 0 or as 1. For two texts, numbers are about one half."""


@dataclass(frozen=True, eq=False)
class ReadRows:
    """The gradient of an embedding, as far as it comes from tokens that were read.

    Attributes:
        tokens: tokens with such a gradient, ascending.
        rows: their rows ``[n, d]``, float64.
        away: span that was taken out of the rows, that of a tied output layer; None without one.
    """

    tokens: tuple[int, ...]
    rows: Tensor
    away: Span | None

    def outside(self, rows: Tensor) -> Tensor:
        """Return rows ``[n, d]`` of another gradient without the same span."""
        return rows if self.away is None else _without(rows, self.away)


def recover_tokens(task: Task, grads: Grads, *, floor: float = 0.0) -> tuple[int, ...]:
    """Return the tokens of a batch: those that give their embedding a gradient.

    A token on which the loss does not depend is missing: padding, and the last token of a sequence
    that a causal model is trained on. Where the embedding is tied to the output layer, every row
    has a gradient. That of the outputs lies in the span of the last hidden states, which the rows
    of tokens outside of the batch show.

    Args:
        task: task with a model that has ``get_input_embeddings``, as those of transformers do.
        grads: one gradient, leaf ``[1, *p]``.
        floor: shortest row of the gradient that counts, as a share of the longest; above 0 for a
            gradient with noise.

    Raises:
        InputError: the embedding has no gradient here, all its rows have one, or the hidden states
            of a tied output layer leave no room.
    """
    return token_rows(task, grads, floor=floor).tokens


def token_rows(task: Task, grads: Grads, *, floor: float = 0.0) -> ReadRows:
    """Return the rows of tokens that were read; arguments and errors are of ``recover_tokens``."""
    name, embedding = embedding_name(task.model), embedding_of(task.model)
    require(
        name in grads,
        f"{name!r} has no gradient: the embedding is frozen, as with adapters; use dager, "
        "which reads the attention layers",
    )
    named = task.model.named_parameters(remove_duplicate=False)
    shared = [other for other, one in named if other != name and one is embedding]
    rows = grads[name][0].double()
    away, sizes = None, rows.norm(dim=1)
    if shared:
        away, outside = _outside_of_outputs(rows, grads, shared[0])
        sizes = torch.where(outside, sizes, 0.0)
        rows = _without(rows, away)
    found = (sizes > floor * sizes.max()).nonzero().flatten()
    require(
        len(found) < len(sizes),
        f"all {len(sizes)} rows of {name!r} have a gradient, as with noise; raise floor",
    )
    return ReadRows(tuple(found.tolist()), rows[found], away)


def _outside_of_outputs(rows: Tensor, grads: Grads, head: str) -> tuple[Span, Tensor]:
    """Return the span of the outputs' part of a tied gradient, and which rows leave it ``[V]``.

    The shorter half of the rows shows the span: a token that was read has a long row. Each quarter
    shows it alone, so that a short row of a read token does not hide itself.
    """
    precision = precision_of(grads.values())
    lengths = rows.norm(dim=1)
    short = lengths.argsort()[: len(rows) // 2]
    short = short[lengths[short] > 0]
    spans = [_span(rows[short[start::2]], precision) for start in (0, 1)]
    limit = max(relative_tolerance(precision, OUTSIDE), *(one.slack for one in spans))
    require(
        limit < HIDING,
        f"the embedding is tied to {head!r}, and the precision of its gradient, "
        f"{name_of(precision)}, hides which rows the batch's tokens gave; use dager",
    )
    outside = torch.stack([one.distance(rows) for one in spans]).amax(dim=0) > limit
    require(
        bool(outside.any()),
        f"the embedding is tied to {head!r}, and no row leaves the span of its part: the batch has "
        "about as many tokens as the model has dimensions, or the gradient has noise",
    )
    return _span(rows[~outside & (lengths > 0)], precision), outside


def _span(rows: Tensor, precision: torch.dtype) -> Span:
    """Return the span of rows of about equal weight ``[n, d]``."""
    require(len(rows) > 0, "the embedding's gradient is zero, so it names no token")
    return span_of([(rows / rows.norm(dim=1, keepdim=True)).T], through=None, precision=precision)


def _without(rows: Tensor, away: Span) -> Tensor:
    return rows - rows @ away.basis.T @ away.basis


def position_name(model: nn.Module) -> str | None:
    """Return the name of the parameter that embeds absolute positions; None without one."""
    for name, part in model.named_modules():
        if isinstance(part, nn.Embedding) and name.rpartition(".")[2] in POSITIONS:
            return f"{name}.weight"
    return None


def read_single(task: Task, grads: Grads) -> tuple[int, ...]:
    """Return the tokens of a single text in their order; none where this gradient shows none.

    With M, which says which token stands at which position, the rows of tokens are M times those of
    positions. Independent rows of positions show M; its numbers are 0 and 1, and each position has
    one token. That is a proof: for several texts they are not. The last token of a causal text has
    no such gradient, and is left out.

    Args:
        task: task with a model that has ``get_input_embeddings`` and embeds absolute positions,
            as GPT-2, BERT and OPT do.
        grads: one gradient, leaf ``[1, *p]``, also of a model in train mode with dropout.
    """
    name = position_name(task.model)
    if name is None or name not in grads:
        return ()
    try:
        read = token_rows(task, grads)
    except InputError:
        return ()
    places = grads[name][0].double()
    places = read.outside(places[places.any(dim=1)])
    if not 0 < len(places) <= places.shape[1]:
        return ()
    where = read.rows @ torch.linalg.pinv(places)
    found = where.round().clamp(0, 1)
    one_each = bool((found.sum(dim=0) == 1).all())
    if not one_each or float((where - found).abs().max()) > CLEAR:
        return ()
    return tuple(read.tokens[row] for row in found.argmax(dim=0).tolist())

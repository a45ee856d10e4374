"""DAGER: the sequences of a batch, from the spans of two attention layers."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.precision import is_coarse, name_of, precision_of, relative_tolerance
from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients.probing import private, trainable
from leakgauge.inversion.text.endings import complete
from leakgauge.inversion.text.layers import (
    AttentionLayer,
    Span,
    attention_layers,
    dimensions,
    embedding_of,
    inputs_of,
)
from leakgauge.inversion.text.mode import later, masking, reason_of_change, sides, with_the_rest
from leakgauge.inversion.text.recovered import CONFIRMED, RecoveredText

TOLERANCE = 1e-3
"""Largest distance of a vector from a span that counts as inside, relative to its length."""


MOST = 65_536
"""Largest number of sequences that are tried at once by default."""


def dager(
    task: Task,
    params: Params,
    grads: Grads,
    *,
    length: int,
    labels: Tensor | None = None,
    tolerance: float = TOLERANCE,
    noise: float = 0.0,
    most: int = MOST,
    padding: int | None = None,
) -> RecoveredText:
    """Return the token sequences of a batch, by DAGER's two span checks.

    The gradient of an attention layer's maps spans the layer's inputs. The first check tests each
    token, at each position: is its embedding in the span of the first layer? The second check tests
    sequences of these tokens: are their inputs of the second layer in its span? A causal model is
    tested prefix by prefix, any other model for all combinations.

    A model with an output layer over tokens is assumed to be trained on the next token: its last
    tokens reach no attention layer, and come from the output layer. The result is then confirmed if
    its own gradient is the observed one. A model of classes needs ``labels`` for this.

    The gradients of adapters (LoRA) are read, too. That of the first half spans the inputs, in no
    more dimensions than the adapter's rank; that of the second half spans the first half's outputs.

    Args:
        task: task with a model of transformers, as from ``integrations.hugging_face_task``.
        params: all trainable parameters by name, where the gradient was taken.
        grads: one gradient of the mean loss of a batch, leaf ``[1, *p]``.
        length: the largest number of tokens in a sequence.
        labels: classes ``[B]`` or ``[1, B]``, int64, if the attacker knows them; to check the
            result.
        tolerance: largest distance from a span, relative to a vector's length; more for a gradient
            coarser than float32, of which ``ROUNDINGS`` roundings are allowed.
        noise: standard deviation of the noise in each entry, if the attacker knows of any.
        most: largest number of sequences to try at once.
        padding: token that fills up short texts, on either side; it is masked, and begins the
            sequences that it fills up on the left.

    Raises:
        InputError: the model or its gradients do not fit, or are not finite.
    """
    require_count(length, "length")
    require_count(most, "most")
    require_positive(tolerance, "tolerance")
    known = trainable(task.model, params)
    _check(grads, known)
    if labels is not None:
        require(
            labels.shape[:-1] in ((), (1,)) and labels.dtype == torch.int64,
            f"labels are {list(labels.shape)} {name_of(labels.dtype)}; expected classes [B], int64",
        )
        labels = labels.reshape(-1)
    own = private(task, known)
    own.model.eval()
    masking(own.model, padding)
    first, second = attention_layers(own.model)[:2]
    precision = precision_of(grads.values())
    read = partial(AttentionLayer.spans, noise=noise, precision=precision)
    spans = read(first, grads, known), read(second, grads, known)
    if is_coarse(precision):
        tolerance = relative_tolerance(precision, tolerance)
    changed = reason_of_change(own.model, grads, precision)
    search = _Search(own.model, (first, second), spans, tolerance, most, precision, changed)
    result = search.run(length, padding)
    if not result.sequences:
        return with_the_rest(result, own, grads)
    norm = sum(float(one.double().square().sum()) for one in grads.values()) ** 0.5
    numbers = sum(one.numel() for one in grads.values())
    allowed = 1.1 * noise * numbers**0.5 / norm if norm else 0.0
    result = replace(result, allowed=max(relative_tolerance(precision, CONFIRMED), allowed))
    ways = [
        complete(own, grads, one, labels=labels, padding=padding) for one in sides(result, padding)
    ]
    confirmed = [one for one in ways if one.confirmed]
    if confirmed:
        return replace(confirmed[0], stopped="")
    return with_the_rest(ways[0], own, grads)


@dataclass(frozen=True, eq=False)
class _Search:
    model: nn.Module
    layers: tuple[AttentionLayer, AttentionLayer]
    spans: tuple[list[Span], list[Span]]
    tolerance: float
    most: int
    precision: torch.dtype
    changed: str

    def run(self, length: int, padding: int | None) -> RecoveredText:
        vocabulary = embedding_of(self.model)
        device = vocabulary.device
        tokens = torch.arange(len(vocabulary), device=device)
        spans, stopped = self.usable(tokens, length)
        ranks = tuple(max((one.rank for one in own), default=0) for own in self.spans)
        if stopped:
            return RecoveredText(ranks=ranks, stopped=stopped)
        own = replace(self, spans=spans)
        passed, everywhere = own.first(tokens, length, padding)
        found = RecoveredText(candidates=tuple(tuple(one) for one in passed), ranks=ranks)
        if not (passed if padding is None else any(everywhere)):
            return replace(found, stopped=later(everywhere, []) or self.nothing_in(spans[0], 1))
        if own.is_causal(tokens):
            sequences, stopped = own.by_prefix(passed if padding is None else everywhere, padding)
            stopped = stopped or (later(everywhere, sequences) if padding is None else "")
        else:
            sequences, stopped = own.by_product(passed)
        if not sequences and not stopped:
            stopped = self.nothing_in(spans[1], 2)
            sequences = [[one for (one,) in passed]] if all(len(one) == 1 for one in passed) else []
        named = tuple(tuple(one) for one in sequences)
        return replace(found, sequences=named, stopped=stopped, distance=own.worst(named, device))

    def usable(self, tokens: Tensor, length: int) -> tuple[tuple[list[Span], list[Span]], str]:
        """Return the spans that exclude some inputs, and the reason if a layer has none."""
        kept: list[list[Span]] = []
        for number, (layer, spans) in enumerate(zip(self.layers, self.spans, strict=True), 1):
            if not spans:
                return ([], []), (
                    f"attention layer {number} ({layer.name}) has no gradient: its maps are frozen "
                    "or their gradient is zero"
                )
            rows = tokens[:, None].expand(-1, min(length, 4))[: 4 * _width(self.model)]
            inputs = inputs_of(self.model, layer, rows).flatten(0, 1)
            room = [(one, dimensions(one.of(inputs))) for one in spans]
            kept.append(_chosen([one for one, free in room if 0 < one.rank < free]))
            if not kept[-1]:
                one, free = max(room, key=lambda pair: pair[1])
                return ([], []), (
                    f"the gradient of attention layer {number} has rank {one.rank}, and its inputs "
                    f"have {free} dimensions: every token lies in the span, so the span check says "
                    "nothing; the batch has as many tokens as the layer has dimensions, or the "
                    f"gradient has noise{self.of_precision()}"
                )
        return (kept[0], kept[1]), ""

    def inside(self, number: int, inputs: Tensor) -> Tensor:
        """Return which inputs ``[..., d]`` of a layer lie in its spans ``[...]``, bool."""
        limits = [(one, max(self.tolerance, one.slack)) for one in self.spans[number]]
        return torch.stack([one.distance(inputs) < limit for one, limit in limits]).all(dim=0)

    def distance(self, number: int, inputs: Tensor) -> Tensor:
        return torch.stack([one.distance(inputs) for one in self.spans[number]]).amax(dim=0)

    def first(
        self, tokens: Tensor, length: int, padding: int | None
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return the tokens that pass the first check, up to a position without any, and all."""
        places = [
            self.inside(0, inputs_of(self.model, self.layers[0], part[:, None].expand(-1, length)))
            for part in torch.split(tokens, max(1, 2**22 // (length * _width(self.model))))
        ]
        passed = torch.cat(places)
        if padding is not None:
            passed[padding] = False
        by_position = [tokens[passed[:, place]].tolist() for place in range(length)]
        return list(itertools.takewhile(bool, by_position)), by_position

    def is_causal(self, tokens: Tensor) -> bool:
        """Return whether a token leaves the inputs of earlier positions unchanged, by a trial."""
        pair = torch.stack([tokens[[1, 1]], tokens[[1, 2]]])
        one, other = inputs_of(self.model, self.layers[1], pair)[:, 0]
        rtol = relative_tolerance(one.dtype, 1e-4)
        return torch.allclose(one, other, rtol=rtol, atol=1e-2 * rtol)

    def by_prefix(
        self, passed: list[list[int]], padding: int | None
    ) -> tuple[list[list[int]], str]:
        """Return the longest sequences with prefixes that all pass the second check.

        With padding they begin at any position, with padding before.
        """
        found: list[list[int]] = []
        for start in range(1 if padding is None else len(passed)):
            own, stopped = self.from_start(passed, [padding or 0] * start)
            found += _explained(own, start)
            if stopped:
                return found, stopped
        return found, ""

    def from_start(self, passed: list[list[int]], before: list[int]) -> tuple[list[list[int]], str]:
        """Return the longest sequences that begin with some tokens of padding."""
        device = next(self.model.parameters()).device
        prefixes = torch.tensor([before], dtype=torch.int64, device=device)
        found: list[list[int]] = []
        for place, names in enumerate(passed[len(before) :], len(before)):
            if not names:
                return found + (prefixes.tolist() if place > len(before) else []), ""
            ends = torch.tensor(names, device=device)
            n = len(prefixes)
            if n * len(ends) > self.most:
                return found + prefixes.tolist(), (
                    f"{n} prefixes with {len(ends)} next tokens each are more than {self.most} "
                    f"sequences, at position {place}; raise most"
                )
            begun = prefixes.repeat_interleave(len(ends), 0)
            longer = torch.cat([begun, ends.repeat(n)[:, None]], dim=1)
            inputs = inputs_of(self.model, self.layers[1], longer, last=True)
            good = self.inside(1, inputs)
            ended = ~good.reshape(n, -1).any(dim=1)
            found += prefixes[ended].tolist() if place > len(before) else []
            prefixes = longer[good]
            if not len(prefixes):
                break
        return found + prefixes.tolist(), ""

    def by_product(self, passed: list[list[int]]) -> tuple[list[list[int]], str]:
        """Return the longest combinations of tokens that pass the second check at each position."""
        device = next(self.model.parameters()).device
        found: list[list[int]] = []
        for stop in range(len(passed), 0, -1):
            names = [torch.tensor(one, device=device) for one in passed[:stop]]
            count = math.prod(map(len, names))
            if count > self.most:
                return found, (
                    f"{count} combinations of tokens are more than {self.most} sequences; "
                    "raise most"
                )
            all_of = torch.cartesian_prod(*names).reshape(count, stop)
            inputs = inputs_of(self.model, self.layers[1], all_of)
            found += all_of[self.inside(1, inputs).all(dim=1)].tolist()
            if found:
                break
        return found, ""

    def worst(self, sequences: Sequence[Sequence[int]], device: torch.device) -> float:
        found = 0.0
        for one in sequences:
            row = torch.tensor([list(one)], device=device)
            for number, layer in enumerate(self.layers):
                inputs = inputs_of(self.model, layer, row)
                found = max(found, float(self.distance(number, inputs).max()))
        return found

    def nothing_in(self, spans: list[Span], number: int) -> str:
        full = [one for one in spans if one.full]
        if full:
            return (
                f"no token lies in the span of layer {number}: its gradient has the full rank "
                f"{full[0].rank} that an adapter allows, and the batch has more tokens"
            )
        rank = max(one.rank for one in spans)
        if number > 1 and rank < max(one.rank for one in self.spans[0]):
            return (
                f"no sequence lies in the span of layer 2, whose rank {rank} is below that of "
                "layer 1: a last layer has a gradient only where the loss reads it, and small "
                "gradients round to zero"
            )
        return (
            f"no {'token' if number == 1 else 'sequence'} lies in the span of layer {number} (rank "
            f"{rank}) up to {self.tolerance:g}: {self.changed}{self.of_precision()}"
        )

    def of_precision(self) -> str:
        """Return the end of a reason for a gradient that is coarser than float32; else nothing."""
        if not is_coarse(self.precision):
            return ""
        return (
            f", or its precision, {name_of(self.precision)}, hides the tokens: rounding alone "
            f"moves a number by up to {torch.finfo(self.precision).eps / 2:.2%}"
        )


def _chosen(spans: list[Span]) -> list[Span]:
    """Return the spans to check: those of the inputs themselves, unless these may lack dimensions.

    The second halves of adapters show the inputs through the first halves. That of the queries
    lacks the first token, whose attention is fixed, so the one with the most dimensions counts.
    """
    direct = [one for one in spans if one.through is None]
    safe = [one for one in direct if not one.full]
    through = [one for one in spans if one.through is not None]
    return safe or ([max(through, key=lambda one: one.rank)] if through else direct)


def _explained(rows: list[list[int]], start: int) -> list[list[int]]:
    """Return the sequences without repetitions of a token that begins another one, at ``start``.

    Without positions in its embedding, a model gives a repeated first token the same inputs.
    """
    begun = {row[start] for row in rows if len(set(row[start:])) > 1}
    return [row for row in rows if len(set(row[start:])) > 1 or row[start] not in begun]


def _width(model: nn.Module) -> int:
    return embedding_of(model).shape[1]


def _check(grads: Grads, known: Params) -> None:
    for name, value in grads.items():
        require(name in known, f"{name!r} has a gradient, but is not a trainable parameter")
        require(
            list(value.shape) == [1, *known[name].shape],
            f"the gradient of {name!r} is {list(value.shape)}; expected "
            f"{[1, *known[name].shape]}: one gradient, its stack's axis first",
        )
        require(
            bool(value.isfinite().all()),
            f"the gradient of {name!r} is not finite everywhere; check the update",
        )

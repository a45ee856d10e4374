"""Try a user's transform on random gradients of a model, before anything relies on it."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.types import Grads, Params
from leakgauge.core.user_code import one_line
from leakgauge.defenses.transform import Transform

_SEED = 0
_ROWS = 2


class FaultyDefenseError(InputError):
    """A user's transform breaks the rules, whatever the other settings are."""


def try_transform(transform: Transform, params: Params, name: str) -> None:
    """Refuse a user's transform that breaks the rules of ``Transform`` on a model's gradients.

    It gets two random gradients, twice, and one of them alone. Built-in transforms are not tried.

    Args:
        transform: from ``Defense.per_example`` or ``Defense.update``.
        params: the model's parameters.
        name: name of the defense, for messages.

    Raises:
        FaultyDefenseError: it fails; it returns other parameters, shapes or types, or numbers that
            are not finite; it changes the gradients that it gets; it draws without the generators
            of the rows; or a row of the result depends on other rows.
    """
    if not _is_own(transform):
        return
    generator = torch.Generator().manual_seed(_SEED)
    grads = {
        key: torch.randn(_ROWS, *leaf.shape, generator=generator, dtype=leaf.dtype).to(leaf.device)
        for key, leaf in params.items()
    }
    found = _result(transform, grads, name)
    again = _result(transform, grads, name)
    _require(
        _close(found, again),
        f"defense {name!r} gives two results for the same gradients; draw random numbers from "
        "rngs, one generator for each row",
    )
    first = {key: leaf[:1] for key, leaf in grads.items()}
    _require(
        _close(_result(transform, first, name), {key: leaf[:1] for key, leaf in found.items()}),
        f"defense {name!r} gives a row another result next to other rows; rows are different "
        "clients or records: compute each from itself and its own generator alone",
    )


def _is_own(transform: Transform) -> bool:
    """Return whether a user wrote the transform, or one that it is made of."""
    made_of = [part for one in transform.parts for part in (one, getattr(one, "transform", one))]
    return any(not type(one).__module__.startswith("leakgauge.") for one in (transform, *made_of))


def _result(transform: Transform, grads: Grads, name: str) -> Grads:
    """Return the transformed gradients, which have the promised form."""
    given = {key: leaf.clone() for key, leaf in grads.items()}
    like = next(iter(grads.values()))
    rngs = [torch.Generator(device=like.device).manual_seed(row) for row in range(len(like))]
    try:
        found = transform(given, rngs)
    except InputError:
        raise
    except Exception as error:
        raise FaultyDefenseError(
            f"defense {name!r} fails on gradients of this model: {one_line(error)}"
        ) from error
    _require(
        isinstance(found, Mapping),
        f"defense {name!r} returns {type(found).__name__}; expected a dict of tensors by parameter",
    )
    _refuse_names(list(found), list(grads), name)
    for key, leaf in grads.items():
        _refuse_leaf(found[key], leaf, f"defense {name!r} returns {key!r} as")
        _require(
            bool(torch.isfinite(found[key]).all()),
            f"defense {name!r} returns numbers that are not finite for {key!r}",
        )
        _require(
            torch.equal(given[key], leaf),
            f"defense {name!r} changes the gradient of {key!r} that it gets; return new tensors",
        )
    return found


def _refuse_names(found: Sequence[str], wanted: Sequence[str], name: str) -> None:
    """Refuse parameters that are missing or that the model does not have."""
    told = [
        *[f"no parameter {key!r}" for key in wanted if key not in found],
        *[f"the unknown parameter {key!r}" for key in found if key not in wanted],
    ]
    for first in told[:1]:
        raise FaultyDefenseError(
            f"defense {name!r} returns {first}; return one tensor for each parameter that it gets"
        )


def _refuse_leaf(found: object, wanted: Tensor, what: str) -> None:
    """Refuse what is not a tensor of the wanted shape and type."""
    if not isinstance(found, Tensor):
        raise FaultyDefenseError(f"{what} {type(found).__name__}; expected a tensor")
    _require(
        found.shape == wanted.shape and found.dtype == wanted.dtype,
        f"{what} {list(found.shape)} of {found.dtype}; expected {list(wanted.shape)} of "
        f"{wanted.dtype}, one row for each that it gets",
    )


def _close(found: Grads, wanted: Grads) -> bool:
    """Return whether two results are equal, rounding aside."""
    return all(
        torch.allclose(found[key], leaf, rtol=1e-3, atol=1e-5) for key, leaf in wanted.items()
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise FaultyDefenseError(message)

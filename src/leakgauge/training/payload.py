"""Readers for the dictionaries of the library breaching, as parts of an ``Update``."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from leakgauge.core.checks import InputError, require

PayloadInput = Mapping[str, Any] | Sequence[Mapping[str, Any]]


def read_payload(
    server_payload: PayloadInput,
    shared_data: PayloadInput,
    model: nn.Module,
    *,
    lr: float | None = None,
    steps: int | None = None,
) -> dict[str, Any]:
    """Return the arguments of the ``Update`` that a user of breaching 0.1.2 sends.

    Both kinds of update are under ``"gradients"``. ``UserSingleStep`` stores a gradient there;
    ``UserMultiStep`` stores after - before, the negative of a gradient's direction, and adds a
    ``"data_key"``, even where it hides its local settings.

    Args:
        server_payload: ``{"parameters", ...}``, or a list of one.
        shared_data: ``{"gradients", "buffers", "metadata"}``, or a list of one.
        model: gives the names of the tensors, which are in the order of its parameters.
        lr: the local learning rate, where ``local_hyperparams`` lacks it.
        steps: local steps, where ``local_hyperparams`` lacks them.

    Raises:
        InputError: keys, tensors or the local settings are missing.
    """
    payload, shared = _only(server_payload, "server_payload"), _only(shared_data, "shared_data")
    metadata = _key(shared, "metadata", "shared_data")
    local = metadata.get("local_hyperparams") or {}
    known = {"lr": local.get("lr", lr), "steps": local.get("steps", steps)}
    records, each = metadata.get("num_data_points"), local.get("data_per_step")
    before = _named(_key(payload, "parameters", "server_payload"), model.named_parameters(), model)
    values = _named(_key(shared, "gradients", "shared_data"), model.named_parameters(), model)
    common = {"values": values, "before": before, "labels": metadata.get("labels")}
    if shared.get("buffers") is not None:
        common["buffers"] = _named(shared["buffers"], model.named_buffers(), model)
    if payload.get("buffers") is not None:
        common["held"] = _named(payload["buffers"], model.named_buffers(), model)
    if not _is_change(metadata, known["lr"], known["steps"]):
        return {**common, "kind": "gradient", "batch_size": records, "records": records}
    require(
        known["lr"] is not None and known["steps"] is not None,
        "the update of breaching is a weight change without local_hyperparams; pass lr and steps",
    )
    if records is not None and each is not None:
        # Fewer steps than an epoch use only the first records.
        records = min(records, metadata.get("num_users", 1) * known["steps"] * each)
        each *= metadata.get("num_users", 1)
    return {**common, **known, "kind": "change", "batch_size": each, "records": records}


def _is_change(metadata: Mapping[str, Any], lr: float | None, steps: int | None) -> bool:
    if "num_users" in metadata:  # An aggregate; users with one step send gradients.
        require(
            steps is not None,
            "an aggregate of breaching does not say whether it is of gradients; pass steps (1: "
            "gradients) and lr",
        )
        return steps != 1
    return "data_key" in metadata or metadata.get("local_hyperparams") is not None or lr is not None


def _only(given: PayloadInput, name: str) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        return given
    require(
        isinstance(given, Sequence) and len(given) == 1 and isinstance(given[0], Mapping),
        f"{name} is neither a dictionary nor a list of one; pass one query at a time, {name}[i]",
    )
    return given[0]


def _key(given: Mapping[str, Any], key: str, name: str) -> Any:
    require(given.get(key) is not None, f"{name} has no {key!r}; expected breaching's dictionary")
    return given[key]


def _named(values: Any, named: Any, model: nn.Module) -> dict[str, Tensor]:
    """Return tensors by name; ``named`` gives the names in the order of the tensors."""
    names = [name for name, _ in named]
    tensors = list(values)
    if len(tensors) != len(names):
        raise InputError(
            f"{len(tensors)} tensors came for {type(model).__name__}, which has {len(names)}; "
            "pass the model that the update was made with"
        )
    return dict(zip(names, tensors, strict=True))

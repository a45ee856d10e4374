"""Keeps the updates of an NVFlare federation: a filter of what clients receive and send."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from leakgauge.core.checks import require, require_choice
from leakgauge.core.extras import not_installed
from leakgauge.core.names import few
from leakgauge.core.user_code import function_of
from leakgauge.integrations.arrays import harmless, tensors_in
from leakgauge.integrations.kept import CLIENT, KINDS, MOST, SEEN, Exchange, Keeper
from leakgauge.integrations.kept_base import BaseSource
from leakgauge.integrations.training_settings import LocalTraining, numbers

try:
    from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
    from nvflare.apis.dxo_filter import DXOFilter
    from nvflare.apis.filter import FilterChainType, FilterContextKey
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.app_constant import AppConstants
except ImportError as error:
    raise not_installed("nvflare", "nvflare") from error

EXAMPLES = ("num_examples", "num-examples", "num_samples")
"""Names of the number of records in the meta data of a result."""

MODEL: str = AppConstants.MODEL_WEIGHTS
"""NVFlare's key of the model among the parts of a collection."""

_KINDS = {DataKind.WEIGHTS: KINDS[0], DataKind.WEIGHT_DIFF: KINDS[1]}

_received: dict[tuple[str, str], dict[str, Tensor]] = {}
"""Last received tensors by job and client, shared by the two filters of one process."""


CONTROL = ("scaffold_c_diff",)
"""Names of NVFlare's control variates in the meta data of a result."""


class KeepUpdates(DXOFilter):
    """Keeps updates without a change; use it in both directions.

    On clients: ``recipe.add_client_input_filter(KeepUpdates("kept"), tasks=["train"])`` and
    ``recipe.add_client_output_filter(KeepUpdates("kept"), tasks=["train"])``. On the server with
    ``seen="server"``: ``add_server_output_filter`` and ``add_server_input_filter``. The last
    output filter of a client sees what leaves. NVFlare counts rounds from 0; the first is kept as
    round 1.

    If an update cannot be kept, the training continues and the reason is logged.

    Args:
        folder: for the updates; an absolute path, since NVFlare changes the working folder.
        rounds: numbers of the rounds to keep, from 1; None for all.
        max_size: largest size of the folder, in words.
        seen: side of the filter, ``"client"`` or ``"server"``.
        lr: learning rate of clients.
        batch_size: records of a client's step.
        epochs: passes of a client over its records in a round.
        momentum: momentum of clients' SGD.
        examples: records of a client, if its results do not contain their number.
        model: ``MODULE:FUNCTION`` that returns the client's model, where clients send a part of it,
            such as adapters: the checksum of the other parameters is kept, by which an audit
            recognises the same base.

    Raises:
        InputError: a value does not fit.
    """

    def __init__(
        self,
        folder: str,
        rounds: Sequence[int] | None = None,
        max_size: str = MOST,
        seen: str = CLIENT,
        lr: float | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        momentum: float | None = None,
        examples: int | None = None,
        model: str | None = None,
    ) -> None:
        kinds = list(_KINDS)
        super().__init__(supported_data_kinds=kinds, data_kinds_to_filter=kinds)
        require_choice(seen, "seen", SEEN)
        # NVFlare writes a job from attributes of the names of the arguments.
        self.folder, self.rounds, self.max_size, self.seen = str(folder), rounds, max_size, seen
        self.lr, self.batch_size, self.epochs, self.momentum = lr, batch_size, epochs, momentum
        self.examples, self.model = examples, model
        # A filter is deployed as its arguments: the function is imported where it runs.
        build = None if model is None else lambda: function_of(model, "model")()
        self._base = BaseSource(build)
        self._keeper()

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Forget what this client received before, then look at a message."""
        with harmless("a message", lambda line: self.log_warning(fl_ctx, line)):
            if self._is_received():  # an older model is not what this client trains
                _received.pop(self._key(fl_ctx), None)
        return super().process(shareable, fl_ctx)

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> None:
        """Remember received tensors, or keep sent ones, without a change."""
        with harmless("a message", lambda line: self.log_warning(fl_ctx, line)):
            if not _is_beside_the_model(dxo, shareable):
                self._see(dxo, shareable, fl_ctx)

    def _see(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> None:
        key = self._key(fl_ctx)
        _, client = key
        if self._is_received():
            _received[key] = tensors_in(dxo.data, f"model for {client}")
            return
        meta = {**dict(dxo.meta or {})}
        number = meta.get(MetaKey.CURRENT_ROUND, shareable.get_header(MetaKey.CURRENT_ROUND))
        require(number is not None, f"client {client}: not kept, since its result names no round")
        if not self._keeper().wants(int(number) + 1):
            return
        name = f"round {int(number) + 1}, client {client}"
        require(
            key in _received,
            f"{name}: not kept, since the model that it received is unknown; add KeepUpdates in "
            "both directions, as an input filter and as an output filter",
        )
        way = meta.get(MetaKey.PROCESSED_ALGORITHM)
        require(
            way is None,
            f"{name}: not kept, since a filter before this one encoded its values ({way}); add "
            "KeepUpdates before that filter",
        )
        counts = [int(meta[name]) for name in EXAMPLES if name in meta]
        steps = meta.get(MetaKey.NUM_STEPS_CURRENT_ROUND)
        config = {} if steps is None or self.epochs is not None else {"local-steps": steps}
        self._keeper().keep(
            Exchange(
                int(number) + 1,
                client,
                _received[key],
                tensors_in(dxo.data, f"update of {client}"),
                kind=_KINDS[dxo.data_kind],
                examples=counts[0] if counts else self.examples,
                metrics=_metrics(meta),
                config=config,
                source="nvflare",
                seen=self.seen,
                run=str(fl_ctx.get_job_id() or ""),
                base=self._base.base(_received[key]),
                beside=_beside(meta, shareable),
            )
        )

    def _is_received(self) -> bool:
        chain = self.get_prop(FilterContextKey.CHAIN_TYPE)
        return bool(chain == FilterChainType.TASK_DATA_CHAIN)

    def _key(self, fl_ctx: FLContext) -> tuple[str, str]:
        return str(fl_ctx.get_job_id()), self._client(fl_ctx)

    def _keeper(self) -> Keeper:
        training = LocalTraining(
            lr=self.lr, batch_size=self.batch_size, epochs=self.epochs, momentum=self.momentum
        )
        return Keeper(Path(self.folder), self.rounds, self.max_size, training)

    def _client(self, fl_ctx: FLContext) -> str:
        """Return the client's name, which is this side or the other one."""
        if self.seen == CLIENT:
            return str(fl_ctx.get_identity_name() or "client")
        peer = fl_ctx.get_peer_context()
        return str((peer.get_identity_name() if peer is not None else "") or "client")


def _beside(meta: Mapping[str, Any], shareable: Shareable) -> tuple[str, ...]:
    """Return the names of what a result holds beside its model."""
    whole = from_shareable(shareable)
    parts = whole.data if whole.data_kind == DataKind.COLLECTION else {}
    return (*(name for name in CONTROL if name in meta), *(one for one in parts if one != MODEL))


def _is_beside_the_model(dxo: DXO, shareable: Shareable) -> bool:
    """Return whether a part of a collection is not the model, such as SCAFFOLD's controls.

    Raises:
        InputError: a collection has several parts, none of which is named as the model.
    """
    whole = from_shareable(shareable)
    if whole.data_kind != DataKind.COLLECTION:
        return False
    if MODEL in whole.data:
        return dxo is not whole.data[MODEL]
    require(
        len(whole.data) == 1,
        f"not kept: the parts {few(map(str, whole.data))} of a collection may each be the model; "
        f"send it under {MODEL!r}",
    )
    return False


def _metrics(meta: Mapping[str, Any]) -> dict[str, int | float]:
    """Return the numbers of the meta data, including its metrics."""
    found = numbers(meta)
    for value in meta.values():
        if isinstance(value, Mapping):
            found |= numbers(value)
    return found

"""A filter of NVFlare's clients that refuses a model that was made to give records away."""

from torch import Tensor

from leakgauge.core.extras import not_installed
from leakgauge.core.user_code import function_of
from leakgauge.integrations.arrays import tensors_in
from leakgauge.integrations.received_model import ReceivedModel
from leakgauge.model_checks.guard import ModelRefusedError

try:
    from nvflare.apis.dxo import DXO, DataKind
    from nvflare.apis.dxo_filter import DXOFilter
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.fl_exception import UnsafeJobError
    from nvflare.apis.shareable import Shareable
except ImportError as error:
    raise not_installed("nvflare", "nvflare") from error

_previous: dict[tuple[str, str], dict[str, Tensor]] = {}
"""The last accepted model by job and client, in one process."""


class GuardModel(DXOFilter):
    """Checks each model before a client trains it.

    ``recipe.add_client_input_filter(GuardModel("my_app:build", "my_app:records"),
    tasks=["train"])``. It runs ``leakgauge.guard``. A refused model never reaches the client's own
    code: NVFlare takes the job for unsafe on this client and stops it there. A model that cannot be
    checked is refused as well.

    Args:
        model: ``MODULE:FUNCTION`` that returns the client's own model, with any weights.
        records: ``MODULE:FUNCTION`` that returns the client's records and labels; None checks the
            weights alone.
        loss: the client's loss, one of those of ``leakgauge.Task``.
        batch_size: records of a training step.

    Raises:
        InputError: a function cannot be imported.
    """

    def __init__(
        self,
        model: str,
        records: str | None = None,
        loss: str = "cross_entropy",
        batch_size: int = 64,
    ) -> None:
        kinds = [DataKind.WEIGHTS]
        super().__init__(supported_data_kinds=kinds, data_kinds_to_filter=kinds)
        # NVFlare writes a job from attributes of the names of the arguments.
        self.model, self.records, self.loss, self.batch_size = model, records, loss, batch_size

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> None:
        """Pass the message on without a change, or refuse it.

        Raises:
            UnsafeJobError: the model is refused.
        """
        key = str(fl_ctx.get_job_id()), str(fl_ctx.get_identity_name())
        try:
            received = tensors_in(dxo.data, "the received model")
            own = function_of(self.model, "model")
            records = None if self.records is None else function_of(self.records, "records")
            check = ReceivedModel(own, self.loss, self.batch_size)
            check.check(received, _previous.get(key), records)
        except ModelRefusedError as error:
            self.log_error(fl_ctx, str(error))
            raise UnsafeJobError(str(error)) from error
        _previous[key] = received

"""The factor by which a loss is scaled in float16 training, which gradients keep until a step."""

from typing import Any, ClassVar
from weakref import WeakSet, ref

from torch.amp.grad_scaler import GradScaler, OptState


class LossScale:
    """Knows the ``GradScaler`` that scaled the loss of a step.

    The gradients of single records are scaled as the loss is. Those that the optimizer reads are
    scaled, too, if it divides by the scale itself (fused optimizers); else the scaler has divided
    them. While any instance watches, ``GradScaler.scale`` also tells it which scaler ran.
    """

    _watching: ClassVar[WeakSet["LossScale"]] = WeakSet()
    _own: ClassVar[Any] = None

    def __init__(self) -> None:
        self._scaler: ref[GradScaler] | None = None

    def start(self) -> None:
        """Begin to watch."""
        if LossScale._own is None:
            own: Any = GradScaler.scale
            LossScale._own = own

            def scale(self: GradScaler, outputs: Any) -> Any:
                made = own(self, outputs)
                if self.is_enabled():
                    for one in list(LossScale._watching):
                        one._scaler = ref(self)
                return made

            GradScaler.scale = scale  # type: ignore[method-assign]
        LossScale._watching.add(self)

    def stop(self) -> None:
        """Stop watching; the last one restores ``GradScaler``."""
        LossScale._watching.discard(self)
        if LossScale._own is not None and not LossScale._watching:
            GradScaler.scale = LossScale._own  # type: ignore[method-assign]
            LossScale._own = None
        self._scaler = None

    def forget(self) -> None:
        """Drop the scaler of the last step."""
        self._scaler = None

    def of_records(self) -> float:
        """Return the scale of the loss, 1 without a scaler."""
        scaler = None if self._scaler is None else self._scaler()
        return 1.0 if scaler is None else float(scaler.get_scale())

    def of_step(self) -> float:
        """Return the scale of the gradients that the optimizer is about to read."""
        scaler = None if self._scaler is None else self._scaler()
        if scaler is None:
            return 1.0
        states = scaler._per_optimizer_states.values()
        divided = any(one["stage"] is OptState.UNSCALED for one in states)
        return 1.0 if divided else float(scaler.get_scale())

"""A callback for the ``Trainer`` of Hugging Face's transformers."""

from contextlib import ExitStack
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.core.extras import not_installed
from leakgauge.integrations.watcher import Watcher

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise not_installed("transformers", "hf") from error


class HuggingFaceMonitor(TrainerCallback):
    """Watches ``trainer.train``: ``Trainer(..., callbacks=[HuggingFaceMonitor(monitor)])``.

    The Trainer clips gradients before its callbacks see them (``max_grad_norm=0`` turns that off).
    It passes them no batch, so the monitor sees the arguments of the model.

    The Trainer does not report errors to its callbacks. With ``with monitor:`` around
    ``trainer.train()`` the monitor ends after an error, too.

    Args:
        monitor: monitor of the Trainer's model.
    """

    def __init__(self, monitor: Watcher) -> None:
        self._monitor = monitor
        self._open = ExitStack()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to watch.

        Raises:
            InputError: the Trainer uses DeepSpeed or FSDP.
        """
        for name in ("deepspeed", "fsdp"):
            if getattr(args, name, None):
                raise InputError(
                    f"the Trainer uses {name}, whose processes hold parts of gradients; a monitor "
                    f"needs whole ones: train without {name}, on one device or with plain data "
                    "parallelism"
                )
        if not self._monitor.is_open:
            self._open.enter_context(self._monitor)
        self._monitor.drive()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Look at the gradients of the step."""
        self._monitor.look()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wait for estimates, and stop watching."""
        self._open.close()

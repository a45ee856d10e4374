"""A live monitor of the leakage through the gradients of a training loop."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor, nn

from leakgauge.core.checks import require, require_known
from leakgauge.core.types import Task
from leakgauge.core.user_code import one_line
from leakgauge.defenses.defense import Defense, DefenseSettings
from leakgauge.gradients.walk import walk
from leakgauge.tokens.monitor.clock import Clock
from leakgauge.tokens.monitor.estimating import EstimateRunner
from leakgauge.tokens.monitor.observing import StepObserver
from leakgauge.tokens.monitor.publisher import Log, Publisher, Screen
from leakgauge.tokens.monitor.record_file import RecordFile
from leakgauge.tokens.monitor.settings import AUTO, MEAN, MonitorSettings
from leakgauge.tokens.monitor.taps import unwrapped
from leakgauge.tokens.settings import CriticSettings
from leakgauge.tokens.words import AUTOENCODER, CHECKPOINT, INFONCE, STREAM

if TYPE_CHECKING:
    import pandas as pd


class Monitor:
    """Watches a training loop, and shows when in training its gradients leak.

    It reads ``.grad`` at the step of any optimizer that holds the model's parameters. It runs no
    forward and no backward pass in the loop, draws from separate generators, and removes its hooks
    at the end of the block, also after an error: trained weights are the same without it. Its
    failures print one line on the error stream, and never raise in the loop.

    Args:
        model: trained model, with or without wrappers of Opacus or PyTorch.
        every: steps between cheap measures: the alignment (debiased CKA) of the gradients of a
            batch's records with their inputs, 0 for independent ones, and 1 for ones equal up to
            scale and rotation.
        checkpoints: steps between estimates, or the steps themselves; 0 or () for none.
        features: name of the module that outputs the data features; None takes the input of the
            layer that runs last.
        layers: names of the watched layers; None for all.
        estimator: ``"infonce"``, ``"nwj"``, ``"smile"`` or ``"mine"``.
        token: ``"autoencoder"`` or ``"transformer"``.
        settings: settings of the estimates; replace ``estimator`` and ``token``.
        pairs: ``"stream"`` estimates from the last ``window`` batches of the loop, while the model
            moves; ``"checkpoint"`` from fresh batches of the last ``window`` records, at the
            weights of one step, which finds more. The latter needs ``loss`` and
            ``monitor.step(x, y)``. ``"auto"`` takes the latter if ``loss`` is given, or if the loss
            is a cross-entropy that the loop's own passes show and whose gradient is the
            optimizer's; otherwise it takes the stream, and says why.
        loss: ``(outputs, targets) -> loss`` or its name, for ``pairs="checkpoint"``.
        defense: defense applied to the watched gradients.
        reduction: reduction of the loop's loss, ``"mean"`` or ``"sum"``; defenses that clip use it.
        out: folder of the record; the record of an earlier run is continued.
        start: number of the loop's first step, if the loop resumes from a checkpoint; later entries
            of the record are dropped. None continues after the last entry.
        log: function called as ``log({"leak/cheap": 0.4}, step)``.
        alert: threshold in nats; an estimate with a larger lower end raises an alert.
        on_alert: function called with the message of an alert.
        live: whether to show a live line; None shows it on a terminal.
        window: number of kept pairs, or records.
        records: largest number of records per batch in the cheap measure.
        gather: steps between pairs of the stream.
        width: largest number of kept values of each layer's gradient.
        waiting: largest number of waiting estimates.
        wait: largest number of seconds to wait for estimates at the end of the block. None waits
            until estimates took as long as the loop, and no longer than a minute.
        seed: seed of all random draws.

    Raises:
        InputError: a layer does not exist, a value is out of its range, the model is compiled or
            sharded, or ``out`` contains other files.

    References:
        Real-Time Privacy Risk Measurement with Privacy Tokens for Gradient Leakage.

    >>> import torch
    >>> model = nn.Linear(5, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with Monitor(model, every=10, checkpoints=0) as monitor:
    ...     for step in range(20):
    ...         optimizer.zero_grad()
    ...         model(torch.randn(8, 5)).square().mean().backward()
    ...         optimizer.step()
    >>> [record["step"] for record in monitor.records]
    [0, 10]
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        every: int = 10,
        checkpoints: int | Sequence[int] = 500,
        features: str | None = None,
        layers: Sequence[str] | None = None,
        estimator: str = INFONCE,
        token: str = AUTOENCODER,
        settings: CriticSettings | None = None,
        pairs: str = AUTO,
        loss: Callable[..., Tensor] | str | None = None,
        defense: Defense | DefenseSettings | None = None,
        reduction: str = MEAN,
        out: str | Path | None = None,
        start: int | None = None,
        log: Log | None = None,
        alert: float | None = None,
        on_alert: Callable[[str], None] | None = None,
        live: bool | None = None,
        window: int = 1000,
        records: int = 16,
        gather: int = 2,
        width: int = 256,
        waiting: int = 1,
        wait: float | None = None,
        seed: int = 0,
    ) -> None:
        if pairs == AUTO and loss is not None:
            pairs = CHECKPOINT
        watch = MonitorSettings(
            every=every,
            checkpoints=checkpoints,
            pairs=pairs,
            gather=gather,
            window=window,
            records=records,
            width=width,
            reduction=reduction,
            waiting=waiting,
            wait=wait,
            alert=alert,
            seed=seed,
        )
        inner = unwrapped(model)
        known = {layer.name: layer for layer in walk(Task(inner))}
        require(bool(known), f"{type(inner).__name__} has no trainable parameters to watch")
        for name in layers or ():
            require_known(name, known, f"the model has no layer {name!r} with parameters")
        if features is not None:
            modules = dict(inner.named_modules())
            require_known(features, modules, f"the model has no module {features!r}")
        chosen = settings or CriticSettings(estimator=estimator, token=token)
        watched = {name: known[name] for name in (known if layers is None else layers)}
        self._screen = Screen(live)
        self._watch = watch
        self._observer = StepObserver(inner, watched, features, watch, defense)
        self._estimates = EstimateRunner(
            watch,
            chosen,
            inner,
            split=self._observer.reading.split,
            loss=loss,
            features=features,
            layers=None if layers is None else tuple(layers),
            defense=defense,
        )
        self._clock = Clock(inner.parameters(), self.look)
        about = {"every": every, "pairs": pairs, "token": chosen.token}
        file = None if out is None else RecordFile(Path(out), about)
        self.next_step = (start or 0) if file is None else file.resume(start)
        self._publisher = Publisher(self._screen, file, log, alert, on_alert)
        self._first = self.next_step
        self.is_open = self._was_open = False

    @property
    def records(self) -> list[dict[str, Any]]:
        """Measured entries by step, evenly thinned for a long run. The file has all."""
        return list(self._publisher.entries())

    @property
    def notes(self) -> list[str]:
        """Last messages, each once."""
        return list(self._screen.said)

    @property
    def not_finite(self) -> int:
        """Number of steps left out because a gradient was not finite."""
        return self._observer.not_finite

    def to_pandas(self) -> "pd.DataFrame":
        """Return the records as a table, one per row; ends of intervals are separate columns."""
        import pandas as pd

        return pd.json_normalize(self.records)

    def step(self, x: Tensor | None, y: Tensor | None = None) -> None:
        """Register the batch of a step; call it once per step, before the model if that writes it.

        Without it the monitor uses the arguments of the model. ``pairs="checkpoint"`` needs it.

        Args:
            x: records ``[n, ...]``.
            y: targets ``[n, ...]``.
        """
        if self.is_open:
            self._observer.taps.batch(None if x is None else x.detach())
            if self._estimates.gathers_records and x is not None and y is not None:
                self._estimates.batch(x, y)

    def look(self) -> None:
        """Measure the gradients of a step, before the optimizer uses them.

        Optimizers of PyTorch call it; call it in a loop that updates weights without one.
        """
        if not self.is_open:
            return
        step = self.next_step
        self.next_step += 1
        try:
            self._look(step)
        except Exception as error:  # noqa: BLE001  training must continue
            what = one_line(error)
            self._screen.say(f"the monitor failed at a step ({what}); the loop continues")
        finally:
            self._forget()

    def _forget(self) -> None:
        self._observer.forget(self.next_step)
        self._estimates.expect(self.next_step)

    def drive(self) -> None:
        """Count only calls of ``look`` as steps, not those of optimizers; for integrations."""
        self._clock.stop()

    def defend_records(self, defense: Defense) -> None:
        """Apply a defense to each record's gradient, but not to those of batches.

        It is for trainers that defend the gradient before the optimizer steps.
        """
        self._observer.defend_records(defense)

    def __enter__(self) -> Self:
        require(not self._was_open, "this monitor has watched a loop; make a new one")
        self.is_open = self._was_open = True
        self._observer.start(self.next_step)
        self._estimates.start(self.next_step)
        self._clock.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.is_open = False
        self._clock.stop()
        self._observer.stop()
        self._estimates.close()
        try:
            # after an error do not wait, but keep finished estimates
            if kind is None and (pause := self._estimates.pause()):
                self._screen.inform(pause)
            self._publish(self._estimates.ready() if kind else self._estimates.finish())
        finally:
            with suppress(Exception):
                self._estimates.stop()
            self._last_words(failed=kind is not None)

    def _look(self, step: int) -> None:
        self._publish(self._estimates.ready())
        seen = self._observer.look(step)
        for line in seen.lines:
            self._screen.say(line)
        if seen.cheap is not None:
            self._publisher.cheap(step, seen.cheap)
        if seen.features is not None and seen.gradient is not None:
            reason = self._estimates.gather(seen.features, seen.gradient)
            if reason is not None:
                self._screen.say(reason)
        if self._watch.is_checkpoint(step):
            reason = self._estimates.submit(step, self._observer.reading)
            if reason is not None:
                self._screen.say(f"no estimate at step {step}: {reason}")

    def _publish(self, done: Sequence[tuple[int, dict[str, Any] | str]]) -> None:
        for step, figures in done:
            if isinstance(figures, str):
                self._screen.say(f"no estimate at step {step}: {figures}")
            else:
                self._settle(figures)
                self._publisher.estimates(step, figures)

    def _settle(self, figures: Mapping[str, Any]) -> None:
        """Keep to the source of the first estimate, so that the loop feeds only one."""
        if self._watch.pairs == AUTO:
            pairs = CHECKPOINT if "records" in figures else STREAM
            self._watch = replace(self._watch, pairs=pairs)
            self._observer.settle(self._watch)
            self._estimates.settle(self._watch)

    def _last_words(self, *, failed: bool) -> None:
        steps = self.next_step - self._first
        self._screen.stop(self._publisher.line(max(0, self.next_step - 1)))
        if steps == 0 and not failed:
            self._screen.say(
                "the loop took no step: no optimizer with this model's parameters was used; call "
                "monitor.look() between backward and your update"
            )
        if self.not_finite:
            self._screen.say(
                f"{self.not_finite} of {steps} steps had gradients that are not finite; they are "
                "left out"
            )

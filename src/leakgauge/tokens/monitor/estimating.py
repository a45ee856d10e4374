"""Gathers the inputs of estimates at checkpoints, and submits them to the background process."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from joblib.externals.loky.backend.reduction import dumps
from torch import Tensor, nn

from leakgauge.core.checks import InputError, require
from leakgauge.core.losses import LOSSES
from leakgauge.core.rng import derive
from leakgauge.core.types import Task
from leakgauge.core.user_code import first_line
from leakgauge.defenses.defense import Defense, DefenseSettings
from leakgauge.tokens.gathering import fewest_records
from leakgauge.tokens.monitor.background import Background, Done
from leakgauge.tokens.monitor.buffers import Reservoir, Ring
from leakgauge.tokens.monitor.choosing import ChoosingJob
from leakgauge.tokens.monitor.job import FEWEST, CheckpointJob, StreamJob
from leakgauge.tokens.monitor.reading import GradientReader
from leakgauge.tokens.monitor.settings import AUTO, BATCHES, MonitorSettings
from leakgauge.tokens.monitor.targets import RecordTap
from leakgauge.tokens.settings import CriticSettings
from leakgauge.tokens.sketch import Sketch
from leakgauge.tokens.words import CHECKPOINT

EstimateJob = StreamJob | CheckpointJob | ChoosingJob

FEATURES = 1024
"""Largest number of kept values of data features."""

LONGEST = 60.0
"""Seconds that the end of a loop waits for estimates by default, at most."""


class EstimateRunner:
    """Gathers the inputs of estimates, and runs them in the background.

    Args:
        watch: settings of the monitor.
        settings: settings of the estimates.
        model: the model.
        split: function that splits kept gradients by layer.
        loss: ``(outputs, targets) -> loss`` or its name; ``pairs="checkpoint"`` needs it.
        features: name of the module that outputs the data features; None for the default.
        layers: names of the watched layers; None for the default.
        defense: defense of the gradients.

    Raises:
        InputError: ``pairs="checkpoint"`` without a loss, or with a model that cannot be pickled.
    """

    def __init__(
        self,
        watch: MonitorSettings,
        settings: CriticSettings,
        model: nn.Module,
        *,
        split: Callable[[Tensor], dict[str, Tensor]],
        loss: Callable[..., Tensor] | str | None,
        features: str | None,
        layers: tuple[str, ...] | None,
        defense: Defense | DefenseSettings | None,
    ) -> None:
        self._watch, self._settings, self._model = watch, settings, model
        self._split = split
        self._features, self._layers, self._defense = features, layers, defense
        self._kept_features, self._kept_gradients = Ring(watch.window), Ring(watch.window)
        self._reservoir = Reservoir(watch.window, batches=BATCHES)
        self._background = Background(watch.waiting)
        self._sketch: Sketch | None = None
        self._task = _pickled(model, loss) if watch.pairs == CHECKPOINT else b""
        self._tap = RecordTap(model, self._reservoir.add)

    @property
    def gathers_records(self) -> bool:
        """Whether estimates need records."""
        return self._watch.estimates and self._watch.pairs == CHECKPOINT

    def start(self, step: int) -> None:
        """Begin to count the time of the loop, before a step."""
        self._background.start()
        if self._watch.pairs == AUTO and self._watch.estimates:
            self._tap.start()
            self.expect(step)

    def expect(self, step: int) -> None:
        """Prepare for a step, whose records may be read from its pass."""
        self._tap.due = self._watch.is_recorded(step)

    def settle(self, watch: MonitorSettings) -> None:
        """Drop the pairs of the loop, or stop reading records, whichever is not taken."""
        if watch.pairs == CHECKPOINT:
            self._kept_features, self._kept_gradients = Ring(watch.window), Ring(watch.window)
        else:
            self._tap.stop()
            self._watch = watch

    def close(self) -> None:
        """Remove the hooks on the model."""
        self._tap.stop()

    def stop(self) -> None:
        """End the process at once."""
        self._background.stop()

    def batch(self, x: Tensor, y: Tensor) -> None:
        """Keep records of a batch."""
        self._reservoir.add(x, y)

    def gather(self, features: Tensor, gradient: Tensor) -> str | None:
        """Keep a pair, or return one line with the reason of a refusal.

        Args:
            features: mean data features ``[d]``.
            gradient: reduced gradient ``[k]``.
        """
        if self._sketch is None:
            seed = derive(self._watch.seed, "features")
            self._sketch = Sketch(len(features), width=FEATURES, seed=seed)
        if len(features) != self._sketch.size:
            return (
                f"data features have {len(features)} numbers, and {self._sketch.size} before; "
                "such batches are left out: name a module with an output of constant size by "
                "`features`"
            )
        short = self._sketch.width == self._sketch.size
        self._kept_features.add(features if short else self._sketch(features[None])[0])
        self._kept_gradients.add(gradient)
        return None

    def submit(self, step: int, reading: GradientReader) -> str | None:
        """Start the estimates of a step, or return one line with the reason of a refusal.

        Args:
            step: number of the step.
            reading: reader of the gradient that the optimizer is about to use.
        """
        try:
            job = self._job(step, reading)
        except InputError as error:
            return str(error)
        return self._background.submit(step, job)

    def ready(self) -> list[Done]:
        """Return the estimates that have ended since the last call."""
        return self._background.ready() if self._background.is_busy else []

    def pause(self) -> str:
        """Return one line that says what the end of the loop waits for; empty for no wait."""
        steps, seconds = self._background.unfinished(), self._seconds()
        if not steps or seconds == 0:
            return ""
        which = f"step {steps[0]}" if len(steps) == 1 else f"steps {', '.join(map(str, steps))}"
        return f"waits up to {seconds:.3g} s for the estimates of {which} (wait=0 does not wait)"

    def finish(self) -> list[Done]:
        """Wait for running estimates, and end the process; unfinished ones have a reason."""
        return self._background.finish(self._seconds())

    def _seconds(self) -> float:
        wait = self._watch.wait
        return min(LONGEST, self._background.idle()) if wait is None else wait

    def _job(self, step: int, reading: GradientReader) -> EstimateJob:
        if self._watch.pairs == AUTO:
            return self._choosing(step, reading)
        return self._checkpoint() if self.gathers_records else self._stream(step)

    def _choosing(self, step: int, reading: GradientReader) -> EstimateJob:
        made: list[CheckpointJob | StreamJob | str] = []
        for make in (self._read, partial(self._stream, step)):
            try:
                made.append(make())
            except InputError as error:
                made.append(str(error))
        records, stream = made
        if isinstance(records, str) and isinstance(stream, str):
            raise InputError(f"{records}, and {stream}")
        seen = reading.kept().numpy().copy()
        return ChoosingJob(records, seen, self._reservoir.last, self._watch.seed, stream)  # type: ignore[arg-type]

    def _read(self) -> CheckpointJob:
        """Return a job on the records that the loop's passes show."""
        require(
            self._tap.loss != "" and len(self._reservoir) > 0,
            "the passes of the loop do not show a cross-entropy of one tensor of records",
        )
        need = fewest_records(self._reservoir.batch_size)
        require(
            len(self._reservoir) >= need,
            f"{len(self._reservoir)} records are too few; batches of "
            f"{self._reservoir.batch_size} need {need}",
        )
        if not self._task:
            self._task = _pickled(self._model, self._tap.loss)
        return self._checkpoint()

    def _stream(self, step: int) -> StreamJob:
        count = len(self._kept_features)
        require(count >= FEWEST, f"{count} pairs are too few; it needs {FEWEST}")
        gradients = self._split(self._kept_gradients.rows())
        return StreamJob(
            self._settings,
            derive(self._watch.seed, "job", step),
            self._kept_features.rows().numpy(),
            {name: leaf.numpy() for name, leaf in gradients.items()},
        )

    def _checkpoint(self) -> CheckpointJob:
        require(
            len(self._reservoir) > 0,
            'pairs="checkpoint" needs records; call monitor.step(x, y) once a step',
        )
        return CheckpointJob(
            settings=self._settings,
            seed=derive(self._watch.seed, "job"),  # the same split of records at each step
            task=self._task,
            state={name: _array(leaf) for name, leaf in self._model.state_dict().items()},
            batches=self._reservoir.batches(),
            batch_size=self._reservoir.batch_size,
            features=self._features,
            layers=self._layers,
            width=self._watch.width,
            defense=_built(self._defense, self._reservoir.batch_size),
        )


def _built(defense: Defense | DefenseSettings | None, batch_size: int) -> Defense | None:
    if isinstance(defense, DefenseSettings):
        return defense.build(batch_size=batch_size)
    return defense


def _array(leaf: Tensor) -> np.ndarray:
    half = leaf.is_floating_point() and leaf.element_size() <= 2  # NumPy lacks bfloat16
    leaf = leaf.detach().cpu()
    return (leaf.float() if half else leaf).numpy().copy()


def _pickled(model: nn.Module, loss: Callable[..., Any] | str | None) -> bytes:
    """Return model and loss pickled for another process, without the monitor's hooks."""
    require(
        loss is not None,
        f'pairs="checkpoint" computes further gradients, so it needs the loss; expected a '
        f"function of outputs and targets, or one of {', '.join(LOSSES)}",
    )
    assert loss is not None
    Task(model, loss)  # refuses an unknown name
    try:
        whole = bytes(dumps((copy.deepcopy(model).cpu(), loss)))
    except Exception as error:  # whatever a module of the user raises
        raise InputError(
            f"{type(model).__name__} or its loss cannot be sent to another process "
            f'({first_line(error)}); use pairs="stream"'
        ) from error
    return whole

"""From settings and data to the stages of a run."""

from dataclasses import dataclass

from leakgauge.data import Source
from leakgauge.inference.catalog import USER
from leakgauge.inference.run.adversaries import attacks_of, defenses_of
from leakgauge.inference.run.description import describe
from leakgauge.inference.run.records import records_of
from leakgauge.inference.run.settings import Settings
from leakgauge.inference.run.splitting import split_of
from leakgauge.inference.run.stage import Stage, make_stage
from leakgauge.inference.settings import InferenceSettings
from leakgauge.results.measurements import Run


@dataclass(frozen=True, eq=False)
class Prepared:
    """Stages that are ready to run, and the description of the run.

    Attributes:
        stages: one for each game and defense.
        run: settings and facts for the report.
        dataset: the data's name.
        label: the label's name.
    """

    stages: tuple[Stage, ...]
    run: Run
    dataset: str
    label: str


def prepare(spec: InferenceSettings, source: Source) -> Prepared:
    """Split the records once, encode them for each game, and deal the trials of each stage.

    The network is an MLP for a table, a CNN for images, or the user's own.

    Args:
        spec: resolved.
        source: the data.

    Raises:
        InputError: the data are too few, or the model or a defense does not fit them.
    """
    records = records_of(spec, source)
    split = split_of(records, spec)
    stages: list[Stage] = []
    for ask in spec.ask:
        task, data = records.encode(ask, split)
        stages += [
            make_stage(
                ask,
                task,
                data,
                split,
                attacks=attacks_of(spec, ask),
                settings=settings_of(spec, ask),
                defense=defense,
            )
            for defense in defenses_of(spec)
        ]
    run = describe(stages, split, records, spec, source)
    return Prepared(tuple(stages), run, source.name, records.label)


def settings_of(spec: InferenceSettings, ask: str) -> Settings:
    """Return how one game is played; the secret of user inference is the user."""
    secret = spec.group or USER if ask == USER else str(spec.secret)
    return Settings(
        secret=secret,
        batch_size=spec.batch_size,
        rounds=spec.rounds,
        trials=spec.trials,
        lr=spec.lr,
        batches=spec.batches,
        prior=spec.prior,
        seed=spec.seed,
        allow_loop=spec.allow_loop,
        ratio_bins=spec.ratio_bins,
        candidates=spec.candidates,
        stack=spec.stack,
    )

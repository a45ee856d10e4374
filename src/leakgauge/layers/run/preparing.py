"""Prepares a run: records on sides, the network and its layers, the game, the description."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from leakgauge.core.checks import nearest, require, require_known
from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Task
from leakgauge.data import Source
from leakgauge.gradients import check_vectorisable
from leakgauge.gradients.walk import Layer, walk
from leakgauge.inference import PropertyInference, Pure
from leakgauge.inference.games.blocks import MAX_BLOCKS, BatchSizeError, default_that_fits
from leakgauge.inference.games.mixing import Half, Mix
from leakgauge.inference.words import EMPIRICAL
from leakgauge.layers.catalog import QUESTION
from leakgauge.layers.run.splitting import ParticipantRecords, names_of, sides_of
from leakgauge.layers.spec import LayersSpec
from leakgauge.results.measurements import Run
from leakgauge.runs.question import Prepared
from leakgauge.runs.records import (
    Records,
    describe_run,
    in_training_mode,
    records_of,
    refuse_of_a_table,
    roles_for,
)
from leakgauge.runs.spec import Spec, declared
from leakgauge.training.local import in_evaluation

FEW_BLOCKS = 10
"""Blocks when records are few, enough for an interval."""

BATCHES_IN_A_BLOCK = 2
"""Batches of the rarest value in a block, if there are enough records."""

WHOLE = "model"
"""The name of a layer that is the model itself."""


@dataclass(frozen=True, eq=False)
class LayersPrepared(Prepared):
    """Everything that a run works on.

    Attributes:
        spec: settings, with the columns' roles.
        source: the data.
        task: the model at its first parameters, and its loss.
        data: all records, with an encoding fitted on the attacked participant's records alone.
        sides: rows of each participant.
        layers: the examined layers, in the order in which they run.
        game: property inference on the attacked participant's records.
        run: settings and facts for the report.
        secret: name of the property's column.
    """

    spec: LayersSpec
    task: Task
    data: Dataset
    sides: ParticipantRecords
    layers: Sequence[Layer]
    game: PropertyInference
    run: Run
    secret: str

    def rows(self, index: Tensor) -> Dataset:
        """Return the records at some rows."""
        return self.data.rows(index.to(self.data.y.device))


def prepare(spec: LayersSpec, source: Source) -> LayersPrepared:
    """Split and encode the records, build the network and deal the game.

    Args:
        spec: settings that ``check`` accepted.
        source: the data.

    Raises:
        InputError: a role is missing or wrong, the data are too few or do not fit, the network has
            one layer, or it lacks a layer that the settings name.
    """
    _refuse_other_side(spec, source)
    _refuse_training_mode(source)
    filled, secret = _filled(spec, source)
    spec = replace(spec, **filled, secret=secret, adversary=spec.adversaries)
    records = _records(spec, secret, source)
    sides = sides_of(records, secret, spec)
    task, data = records.encode(sides.private, ())
    task = in_evaluation(task)
    data = data.to(spec.device)
    layers = _layers(spec, task, data)
    values = int(records.secrets[secret].max()) + 1
    fitting, game = _fitting(spec, secret, data.rows(sides.private.to(data.y.device)), values)
    smaller = [] if fitting == spec else [default_that_fits(spec.batch_size, fitting.batch_size)]
    spec = fitting
    run = describe_run(
        spec,
        source,
        records,
        task,
        settings={"adversary": list(spec.adversaries)},
        parts={
            "private": len(sides.private),
            "fitting": len(sides.fitting),
            "held_out": sum(map(len, sides.held_out)),
            "test": len(sides.test),
        },
        secret=str(spec.secret),
    )
    run = replace(run, notes=(*run.notes, *smaller))
    return LayersPrepared(spec, source, task, data, sides, layers, game, run, secret)


def _refuse_training_mode(source: Source) -> None:
    """Refuse a model whose gradients in training mode are not those that are compared."""
    modes = in_training_mode(source)
    require(
        not modes,
        f"the model of --task comes in training mode and holds {modes}: single records have no "
        "repeatable gradients to compare by layer; call model.eval() first, or use GroupNorm",
    )


def _refuse_other_side(spec: LayersSpec, source: Source) -> None:
    """Refuse images of another size: the questions of an audit share those of 32 pixels."""
    if source.pixels is not None:
        read = source.pixels.shape[2]
        require(
            spec.side in (Spec.side, read),
            f"layers.side is {spec.side}, but the images were read with {read} pixels, which all "
            "questions of an audit share; leave it out, or ask with leakgauge run and a grid file",
        )


def _filled(spec: LayersSpec, source: Source) -> tuple[dict[str, Any], str]:
    """Return the roles of columns that the data fill in, and the secret."""
    if source.dataset is not None:
        refuse_of_a_table(spec)
        known = list(source.dataset.secrets)
        require(len(known) > 0, "the Dataset of --task has no secrets; fill Dataset.secrets")
        require(
            spec.secret is not None or len(known) == 1, f"--secret is missing{nearest('', known)}"
        )
        secret = known[0] if spec.secret is None else spec.secret
        require_known(secret, known, f"--secret is {secret!r}")
        return {}, secret
    roles = roles_for(spec, source, secret=spec.secret, secret_needed=True)
    filled = {"label": roles.label, "group": roles.group, "drop": roles.drop, "bins": roles.bins}
    return filled, next(iter(roles.secrets))


def _records(spec: LayersSpec, secret: str, source: Source) -> Records:
    records = records_of(
        spec, source, hidden=spec.hidden, net=spec.net, init=spec.init, secret=secret
    )
    if not spec.by_user:
        records = _without_users(records)
    return records if spec.value is None else _against_others(records, secret, spec.value)


def _without_users(records: Records) -> Records:
    def encoded(fit_on: Tensor, keep: tuple[str, ...]) -> tuple[Task, Dataset]:
        task, data = records.encode(fit_on, keep)
        return task, replace(data, users=None)

    return replace(records, users=None, encode=encoded)


def _against_others(records: Records, secret: str, value: str) -> Records:
    """Return the records with a secret of two values: the property, and all others."""
    codes = records.secrets[secret]
    names = names_of(records, secret)
    require_known(value, names, f"{secret!r} has no value {value!r}")
    own = {secret: (codes == names.index(value)).long()}
    values = {secret: (f"not {value}", value)}

    def encoded(fit_on: Tensor, keep: tuple[str, ...]) -> tuple[Task, Dataset]:
        task, data = records.encode(fit_on, keep)
        codes = own[secret].to(data.y.device)
        schema = data.schema
        if schema is not None:
            schema = replace(schema, secrets={**schema.secrets, **values})
        return task, replace(data, secrets={**data.secrets, secret: codes}, schema=schema)

    secrets, known = {**records.secrets, **own}, {**records.values, **values}
    return replace(records, secrets=secrets, values=known, encode=encoded)


def _layers(spec: LayersSpec, task: Task, data: Dataset) -> list[Layer]:
    first = data.rows(torch.arange(min(2, len(data)), device=data.y.device))
    check_vectorisable(task, first.x, first.y)
    found = walk(task, first.x)
    names = [one.name or WHOLE for one in found]
    require(
        len(found) >= 2,
        f"the network has one layer with parameters ({names[0]!r}), so no layer can leak more than "
        "another; bring a deeper one, for example --hidden 100",
    )
    for name in spec.layers:
        require_known(name, names, f"the network has no layer {name!r}")
    wanted = spec.layers or names
    return [one for one, name in zip(found, names, strict=True) if name in wanted]


def _fitting(
    spec: LayersSpec, secret: str, private: Dataset, values: int
) -> tuple[LayersSpec, PropertyInference]:
    """Return settings and game; a default batch that does not fit gets smaller."""
    default = declared(LayersSpec)["batch_size"].default
    fitting = spec
    while True:
        try:
            return fitting, _game(fitting, secret, private, values)
        except BatchSizeError as error:
            most = min(error.most // spec.local_steps, fitting.batch_size - 1)
            if spec.batch_size != default or most < (2 if spec.half else 1):
                raise
            fitting = replace(fitting, batch_size=most)


def _game(spec: LayersSpec, secret: str, private: Dataset, values: int) -> PropertyInference:
    codes = private.secrets[secret]
    counts = torch.bincount(codes, minlength=values).double()
    prior = tuple((counts / counts.sum()).tolist()) if spec.prior == EMPIRICAL else None
    mix: Mix = Half() if spec.half else Pure(values)
    game = PropertyInference.deal(
        private,
        secret,
        batch_size=spec.records_seen,
        mix=mix,
        prior=prior,
        max_blocks=_most_blocks(spec, int(counts[counts > 0].min())),
        rng=stream(spec.seed, QUESTION, "blocks"),
    )
    assert isinstance(game, PropertyInference)
    return game


def _most_blocks(spec: LayersSpec, rarest: int) -> int:
    """Return the number of blocks: a few with several batches each, not many with one.

    A log loss is heavy in its tail, and a block of a single batch would show it that batch alone.
    """
    roomy = rarest // (BATCHES_IN_A_BLOCK * spec.records_seen)
    return max(FEW_BLOCKS, min(MAX_BLOCKS, roomy))

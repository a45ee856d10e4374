"""The scenario of an attack: private records, the network, and what every attacker knows."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from leakgauge.core.checks import require
from leakgauge.core.copying import copy_of
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Dataset, Params, Schema, Task
from leakgauge.data import Roles, Source, Table, data_folder, encode, make_table
from leakgauge.data.encoding import encode_label, make_picture_table, outputs_for
from leakgauge.data.pixels import Pixels
from leakgauge.data.source import explained
from leakgauge.gradients import params_of
from leakgauge.inversion.metrics.lpips import Lpips
from leakgauge.inversion.run.drawing import draw_rows
from leakgauge.inversion.scoring import Baselines, Scorer
from leakgauge.inversion.servers.catalog import server_of
from leakgauge.inversion.servers.server import ServerKnowledge
from leakgauge.inversion.spec import InversionSpec
from leakgauge.inversion.text.recovered import frequent_tokens
from leakgauge.models import build, initialise, load_weights, mlp

MOST_PUBLIC, PUBLIC_BYTES = 4096, 2**26
"""Public records that are kept for baselines, at most, and their size."""

PADDED = -100
"""Target of a token that the loss of a causal model leaves out."""

_ALL_ATTACKED = (
    "all images are attacked, so their own channels' means and spreads stand for the publicly "
    "known ones; fewer --images leave others to learn them from"
)


@dataclass(frozen=True, eq=False)
class Scenario:
    """Private records, the network, and what every attacker knows.

    Attributes:
        task: the model and its loss.
        params: where clients start.
        x: private records ``[N, ...]``, in units of the model's input.
        y: their labels ``[N]``: codes, or numbers.
        low: lowest values of a record, broadcast to it; the attacker searches above them.
        high: highest values of a record, broadcast to it.
        guess: a record ``[...]`` that uses no gradient: the mean of public ones.
        public: other records of the data, which are not attacked: a sample, encoded as ``x``.
        drawn: how the records were drawn: ``"distinct"``, ``"random"`` or ``"first"``.
        rows: their positions in the user's data ``[N]``, counted from 0.
        pixels: turns records into images; None for other records.
        schema: columns of a table; None for other records.
        classes: names of the labels.
        notes: notes for the user on the preparation of the data.
    """

    task: Task
    params: Params
    x: Tensor
    y: Tensor
    low: Tensor
    high: Tensor
    guess: Tensor
    public: Dataset
    drawn: str
    rows: NDArray[np.int64]
    pixels: Pixels | None = None
    schema: Schema | None = None
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def baselines(self) -> Baselines:
        """The guesses that use no gradient."""
        return Baselines(self.public, self.guess, self.schema)

    def scorer(self, lpips: Lpips | None = None) -> Scorer:
        """Return the scorer of records: pixels from 0 to 1, correct columns, or correct tokens."""
        to_units = None if self.pixels is None else self.pixels.decode
        return Scorer(to_units, self.schema, lpips, self.tokens)

    @property
    def tokens(self) -> Tensor | None:
        """Tokens of the records that count, bool ``[N, L]``; None unless records are text.

        A token with the target -100 is padding, which the loss of a causal model leaves out.
        """
        if self.x.is_floating_point():
            return None
        is_causal = self.y.shape == self.x.shape
        return self.y != PADDED if is_causal else torch.ones_like(self.x, dtype=torch.bool)


def scenario_of(source: Source, spec: InversionSpec) -> Scenario:
    """Return the encoded records and the network.

    Args:
        source: the data.
        spec: with its roles, network and number of records filled in.

    Raises:
        InputError: the data have too few records, or the weights do not fit the network.
    """
    if source.task is not None:
        return _text_scenario(source, spec)
    made = (_table_scenario if source.pixels is None else _image_scenario)(source, spec)
    return _with_server(made, spec)


def _with_server(scenario: Scenario, spec: InversionSpec) -> Scenario:
    """Return the scenario with the model that the server sends."""
    server = server_of(spec.server)
    if server is None:
        return scenario
    known = ServerKnowledge(
        scenario.public.x,
        scenario.public.y,
        scenario.low,
        scenario.high,
        spec.records_per_update,
    )
    task = server.alter(scenario.task, known, torch_stream(spec.seed, "server"))
    return replace(scenario, task=task, params=params_of(task.model))


def weights_file(text: str) -> Path:
    """Return a file of weights by its path, or by its name in ``weights/`` of the data folder."""
    stored = (data_folder() or Path()) / "weights" / text
    return stored if stored.is_file() and not Path(text).is_file() else Path(text)


def _image_scenario(source: Source, spec: InversionSpec) -> Scenario:
    assert source.pixels is not None
    with explained(source):
        table, rows = make_picture_table(source.frame, _roles(spec), drop_missing=spec.drop_missing)
    attacked, drawn = _attacked_rows(spec, table.y)
    others = np.delete(rows, attacked)
    of_others = np.delete(np.arange(len(rows)), attacked if len(others) else [])
    # Channels are scaled by public images; nothing private is used.
    pixels = Pixels.learn(source.pixels[others if len(others) else rows])
    means = ", ".join(f"{mean:.3f}" for mean in pixels.mean)
    scaled = f"channels are scaled by other images of the data (means {means})"
    x = pixels.encode(source.pixels[rows[attacked]]).to(spec.device)
    net = build(
        str(spec.net),
        channels=x.shape[1],
        classes=_outputs(spec, table),
        side=x.shape[2],
        init=spec.init,
        generator=torch_stream(spec.seed, "model"),
    )
    model = _loaded(net, spec)
    public_rows = torch.from_numpy(of_others)
    codes = encode_label(table, public_rows, x.dtype, scale_binary=spec.scale_binary)
    some = _sample(len(others), x[0], spec)
    public = Dataset(
        pixels.encode(source.pixels[others[some]]).to(spec.device),
        _outputs_of_labels(spec, table, codes[of_others[some]]).to(spec.device),
    )
    return Scenario(
        task=Task(model, spec.loss),
        params=params_of(model),
        x=x,
        y=_outputs_of_labels(spec, table, codes[attacked]).to(spec.device),
        low=pixels.low.to(spec.device),
        high=pixels.high.to(spec.device),
        guess=torch.zeros_like(x[0]),
        public=public,
        drawn=drawn,
        rows=rows[attacked],
        pixels=pixels,
        classes=tuple(table.classes),
        notes=(*source.notes, *table.notes, scaled if len(others) else _ALL_ATTACKED),
    )


def _table_scenario(source: Source, spec: InversionSpec) -> Scenario:
    with explained(source):
        table = make_table(source.frame, _roles(spec), drop_missing=spec.drop_missing)
    drawn_rows, drawn = _attacked_rows(spec, table.y)
    attacked = torch.from_numpy(drawn_rows)
    others = torch.from_numpy(np.delete(np.arange(len(table)), attacked.numpy()))
    require(
        len(others) > 0,
        f"all {len(table)} records are attacked, so there are none to learn the encoding from; "
        "lower --images",
    )
    data = encode(table, fit_on=others, scale_binary=spec.scale_binary).to(spec.device)
    net = mlp(data.x.shape[1], _outputs(spec, table), spec.hidden, generator=torch.Generator())
    initialise(net, spec.init, generator=torch_stream(spec.seed, "model"))
    model = _loaded(net, spec)
    some = _sample(len(others), data.x[0], spec)
    return Scenario(
        task=Task(model, spec.loss),
        params=params_of(model),
        x=data.x[attacked],
        y=_outputs_of_labels(spec, table, data.y[attacked]),
        low=data.x[others].amin(dim=0),
        high=data.x[others].amax(dim=0),
        guess=data.x[others].mean(dim=0),
        public=Dataset(data.x[others[some]], _outputs_of_labels(spec, table, data.y[others[some]])),
        drawn=drawn,
        rows=table.rows[drawn_rows],
        schema=data.schema,
        classes=tuple(table.classes),
        notes=(*source.notes, *table.notes),
    )


def _text_scenario(source: Source, spec: InversionSpec) -> Scenario:
    assert source.task is not None
    assert source.dataset is not None
    data = source.dataset
    # Targets of a causal model are tokens, which give no classes to draw by.
    labels = data.y if data.y.dim() == 1 else torch.zeros(len(data))
    rows, drawn = _attacked_rows(spec, labels)
    others = np.delete(np.arange(len(data)), rows)
    require(
        len(others) > 0,
        f"all {len(data)} sequences are attacked, so none are left to guess from; lower --images",
    )
    public = others[_sample(len(others), data.x[0], spec)]
    model = source.task.model
    if spec.device != "cpu":  # the caller's model stays where it is
        model = copy_of(model).to(spec.device)
    x = data.x[rows].to(spec.device)
    return Scenario(
        task=Task(model, source.task.loss),
        params=params_of(model),
        x=x,
        y=data.y[rows].to(spec.device),
        low=x.new_zeros(()),
        high=data.x.amax().to(spec.device),
        guess=frequent_tokens(data.x[others]).to(spec.device),
        public=Dataset(data.x[public].to(spec.device), data.y[public].to(spec.device)),
        drawn=drawn,
        rows=rows,
        notes=source.notes,
    )


def _sample(count: int, record: Tensor, spec: InversionSpec) -> NDArray[np.int64]:
    """Return positions of some of ``count`` records, as many as fit into ``PUBLIC_BYTES``."""
    most = min(MOST_PUBLIC, max(1, PUBLIC_BYTES // (4 * record.numel())))
    return stream(spec.seed, "public").permutation(count)[:most]


def _roles(spec: InversionSpec) -> Roles:
    rare = spec.merge_rare
    return Roles(str(spec.label), (), spec.group, spec.drop, spec.bins, rare, spec.numeric)


def _loaded(model: nn.Module, spec: InversionSpec) -> nn.Module:
    """Return the model on its device, with the trained weights that the user names."""
    model = model.to(spec.device)
    if spec.weights is not None:
        load_weights(model, weights_file(spec.weights))
    return model


def _attacked_rows(spec: InversionSpec, labels: Tensor) -> tuple[NDArray[np.int64], str]:
    """Return the positions of the attacked records, and how they were drawn."""
    assert spec.images is not None
    return draw_rows(
        labels.numpy(),
        spec.images,
        spec.records_per_update,
        how=spec.draw,
        first=spec.first,
        rng=stream(spec.seed, "records"),
    )


def _outputs(spec: InversionSpec, table: Table) -> int:
    """Return the number of outputs: the number of classes in the data, or more by request."""
    own = outputs_for(table)
    require(
        spec.classes is None or spec.classes >= own,
        f"--classes is {spec.classes}, and the data have {own}; expected at least as many",
    )
    return spec.classes or own


def _outputs_of_labels(spec: InversionSpec, table: Table, y: Tensor) -> Tensor:
    """Return the output that stands for each label ``[n]``.

    It is the label's code; with a head of more classes the label itself, where all labels are
    numbers of outputs: those of a sample of ImageNet count its 1,000 classes.
    """
    if spec.classes is None or not all(name.isdecimal() for name in table.classes):
        return y
    numbers = torch.tensor([int(name) for name in table.classes])
    return numbers.to(y.device)[y] if int(numbers.max()) < spec.classes else y

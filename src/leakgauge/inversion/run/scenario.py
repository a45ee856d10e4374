"""What an attempt to rebuild records is played on: records, network, and what is public."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import require
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Params, Schema, Task
from leakgauge.data import Roles, Source, encode, make_table
from leakgauge.data.image_tables import make_picture_table
from leakgauge.data.pixels import Pixels
from leakgauge.gradients import params_of
from leakgauge.inversion.run.spec import InversionCell
from leakgauge.models import build, initialise, load_weights, mlp

_ALL_ATTACKED = (
    "all images are attacked, so their own channels' means and spreads stand for the publicly "
    "known ones; fewer --images leave others to learn them from"
)


@dataclass(frozen=True, eq=False)
class Scenario:
    """What is attacked, and what every attacker knows.

    Attributes:
        task: the model and its loss.
        params: where clients start.
        x: private records ``[N, ...]``, in units of the model's input; y, their labels.
        y: see ``x``.
        low: lowest values of a record, high the highest: the attacker's box.
        high: see ``low``.
        guess: a record ``[...]`` that takes no gradient: the mean of public ones.
        pixels: how to turn records into images; None for a table.
        schema: of a table; None for images.
        classes: names of the labels.
        notes: what was done to the data and should be known.
    """

    task: Task
    params: Params
    x: Tensor
    y: Tensor
    low: Tensor
    high: Tensor
    guess: Tensor
    pixels: Pixels | None
    schema: Schema | None
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()


def scenario_of(source: Source, cell: InversionCell) -> Scenario:
    """Encode the records and build the network.

    Args:
        source: the data.
        cell: settled.

    Raises:
        InputError: the data do not fit what is asked.
    """
    return _table_scene(source, cell) if source.pixels is None else _image_scene(source, cell)


def _image_scene(source: Source, cell: InversionCell) -> Scenario:
    assert source.pixels is not None
    roles = Roles(str(cell.label), (), None, (), cell.bins)
    table, rows = make_picture_table(source.frame, roles, drop_missing=cell.drop_missing)
    mine = _mine(cell, len(rows))
    others = np.delete(rows, mine)
    # Channels are scaled by what is publicly known of such images; nothing private is learnt.
    pixels = Pixels.learn(source.pixels[others if len(others) else rows])
    how = ", ".join(f"{mean:.3f}" for mean in pixels.mean)
    own = f"channels are scaled by other images of the data (means {how})"
    own = own if len(others) else _ALL_ATTACKED
    x = pixels.encode(source.pixels[rows[mine]]).to(cell.device)
    channels, side = x.shape[1], x.shape[2]
    model = build(
        str(cell.net),
        channels=channels,
        classes=len(table.classes),
        side=side,
        init=cell.init,
        generator=torch_stream(cell.seed, "model"),
    ).to(cell.device)
    if cell.weights is not None:
        load_weights(model, cell.weights)
    return Scenario(
        task=Task(model, cross_entropy),
        params=params_of(model),
        x=x,
        y=table.y[mine].to(cell.device),
        low=pixels.low.to(cell.device),
        high=pixels.high.to(cell.device),
        guess=torch.zeros_like(x[0]),
        pixels=pixels,
        schema=None,
        classes=tuple(table.classes),
        notes=(*source.notes, *table.notes, own),
    )


def _table_scene(source: Source, cell: InversionCell) -> Scenario:
    table = make_table(
        source.frame,
        Roles(str(cell.label), (), cell.group, cell.drop, cell.bins),
        drop_missing=cell.drop_missing,
    )
    mine = torch.from_numpy(_mine(cell, len(table)))
    others = torch.from_numpy(np.delete(np.arange(len(table)), mine.numpy()))
    require(
        len(others) > 0,
        f"all {len(table)} records are attacked, so there are none to learn the encoding from; "
        "lower --images",
    )
    data = encode(table, fit_on=others).to(cell.device)
    model = mlp(data.x.shape[1], len(table.classes), cell.hidden, generator=torch.Generator())
    initialise(model, cell.init, generator=torch_stream(cell.seed, "model"))
    model = model.to(cell.device)
    if cell.weights is not None:
        load_weights(model, cell.weights)
    return Scenario(
        task=Task(model, cross_entropy),
        params=params_of(model),
        x=data.x[mine],
        y=data.y[mine],
        low=data.x[others].amin(dim=0),
        high=data.x[others].amax(dim=0),
        guess=data.x[others].mean(dim=0),
        pixels=None,
        schema=data.schema,
        classes=tuple(table.classes),
        notes=(*source.notes, *table.notes),
    )


def _mine(cell: InversionCell, count: int) -> np.ndarray:
    """The rows that are attacked."""
    last = cell.first + cell.images
    require(
        last <= count,
        f"records {cell.first} to {last - 1} are asked for; there are {count}; lower --images",
    )
    return np.arange(cell.first, last)

"""What is attacked: private records, the network, and what every attacker knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Params, Schema, Task
from leakgauge.data import Roles, Source, encode, make_table
from leakgauge.data.encoding import encode_label, outputs_for
from leakgauge.data.image_tables import make_picture_table
from leakgauge.data.pixels import Pixels
from leakgauge.gradients import params_of
from leakgauge.models import build, initialise, load_weights, mlp

if TYPE_CHECKING:
    from leakgauge.inversion.spec import InversionSpec

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
        x: private records ``[N, ...]``, in units of the model's input.
        y: their labels ``[N]``: codes, or numbers.
        low: lowest values of a record, broadcast to it; the attacker searches above them.
        high: highest values of a record, broadcast to it.
        guess: a record ``[...]`` that uses no gradient: the mean of public ones.
        pixels: turns records into images; None for a table.
        schema: of a table; None for images.
        classes: names of the labels.
        notes: what a user should know of the preparation of the data.
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


def scenario_of(source: Source, spec: InversionSpec) -> Scenario:
    """Return the encoded records and the network.

    Args:
        source: the data.
        spec: with its roles, network and number of records filled in.

    Raises:
        InputError: the data have too few records, or the weights do not fit the network.
    """
    make = _table_scenario if source.pixels is None else _image_scenario
    return make(source, spec)


def _image_scenario(source: Source, spec: InversionSpec) -> Scenario:
    assert source.pixels is not None
    roles = Roles(str(spec.label), (), None, (), spec.bins, numeric=spec.numeric)
    table, rows = make_picture_table(source.frame, roles, drop_missing=spec.drop_missing)
    attacked = _attacked_rows(spec, len(rows))
    others = np.delete(rows, attacked)
    of_others = np.delete(np.arange(len(rows)), attacked if len(others) else [])
    # Channels are scaled by public images; nothing private is used.
    pixels = Pixels.learn(source.pixels[others if len(others) else rows])
    means = ", ".join(f"{mean:.3f}" for mean in pixels.mean)
    scaled = f"channels are scaled by other images of the data (means {means})"
    x = pixels.encode(source.pixels[rows[attacked]]).to(spec.device)
    channels, side = x.shape[1], x.shape[2]
    model = build(
        str(spec.net),
        channels=channels,
        classes=outputs_for(table),
        side=side,
        init=spec.init,
        generator=torch_stream(spec.seed, "model"),
    ).to(spec.device)
    if spec.weights is not None:
        load_weights(model, spec.weights)
    return Scenario(
        task=Task(model, spec.loss),
        params=params_of(model),
        x=x,
        y=encode_label(table, torch.from_numpy(of_others), x.dtype)[attacked].to(spec.device),
        low=pixels.low.to(spec.device),
        high=pixels.high.to(spec.device),
        guess=torch.zeros_like(x[0]),
        pixels=pixels,
        schema=None,
        classes=tuple(table.classes),
        notes=(*source.notes, *table.notes, scaled if len(others) else _ALL_ATTACKED),
    )


def _table_scenario(source: Source, spec: InversionSpec) -> Scenario:
    table = make_table(
        source.frame,
        Roles(str(spec.label), (), spec.group, spec.drop, spec.bins, numeric=spec.numeric),
        drop_missing=spec.drop_missing,
    )
    attacked = torch.from_numpy(_attacked_rows(spec, len(table)))
    others = torch.from_numpy(np.delete(np.arange(len(table)), attacked.numpy()))
    require(
        len(others) > 0,
        f"all {len(table)} records are attacked, so there are none to learn the encoding from; "
        "lower --images",
    )
    data = encode(table, fit_on=others).to(spec.device)
    model = mlp(data.x.shape[1], outputs_for(table), spec.hidden, generator=torch.Generator())
    initialise(model, spec.init, generator=torch_stream(spec.seed, "model"))
    model = model.to(spec.device)
    if spec.weights is not None:
        load_weights(model, spec.weights)
    return Scenario(
        task=Task(model, spec.loss),
        params=params_of(model),
        x=data.x[attacked],
        y=data.y[attacked],
        low=data.x[others].amin(dim=0),
        high=data.x[others].amax(dim=0),
        guess=data.x[others].mean(dim=0),
        pixels=None,
        schema=data.schema,
        classes=tuple(table.classes),
        notes=(*source.notes, *table.notes),
    )


def _attacked_rows(spec: InversionSpec, count: int) -> np.ndarray:
    """The positions of the attacked records among ``count``."""
    assert spec.images is not None
    last = spec.first + spec.images
    require(
        last <= count,
        f"--images asks for records {spec.first} to {last - 1}, but there are {count}; lower "
        "--images",
    )
    return np.arange(spec.first, last)

"""Data changed on purpose so that their leakage is known, for controls.

A changed source gets a new fingerprint. The given source stays unchanged. ``seed`` draws the
change; ``users`` and ``label`` name columns of a table, and are not used for a task's records.
"""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from leakgauge.core.checks import InputError, require
from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset
from leakgauge.data.image_files import PixelArray
from leakgauge.data.replaced import with_columns
from leakgauge.data.source import Source
from leakgauge.results.statistics import Ints

COPY = "copy of "
"""Prefix of the name of a column that reveals a secret."""

MARK, MARKS = "mark of the user", 4
"""Name and number of the columns that mark a user."""

LABELS = 10
"""Number of values of a random label; with two, half of the guesses on new records are right."""

STAMP = 4
"""Ratio of an image's height and width to those of its stamp."""


def shuffled(source: Source, column: str, *, users: str | None, seed: int) -> Source:
    """Return data with a permuted column, which then says nothing about the other columns.

    A column with one value per user is permuted among the users, any other column among the
    records.

    Raises:
        InputError: the table has no such column, or the task's records no such secret.
    """
    rng = stream(seed, "altered", "shuffled", column)
    if source.dataset is not None:
        data = source.dataset
        require(column in data.secrets, f"the records have no secret {column!r}")
        owners = None if data.users is None else data.users.cpu().numpy()
        values = data.secrets[column].cpu().numpy()
        codes = torch.from_numpy(_moved(pd.Series(values), owners, rng).to_numpy().copy())
        secrets = {**data.secrets, column: codes.to(data.secrets[column].device)}
        return _named(source, f"shuffled {column} {seed}", dataset=replace(data, secrets=secrets))
    require(column in source.frame, f"the table has no column {column!r}")
    owners = None if users is None else pd.factorize(source.frame[users])[0]
    moved = _moved(source.frame[column], owners, rng)
    return _named(
        source, f"shuffled {column} {seed}", frame=with_columns(source.frame, {column: moved})
    )


def shuffled_users(source: Source, users: str, *, seed: int) -> Source:
    """Return data with records assigned to users at random; each keeps its number of records."""
    rng = stream(seed, "altered", "users")
    if source.dataset is not None:
        data = source.dataset
        assert data.users is not None
        order = torch.from_numpy(rng.permutation(len(data.users))).to(data.users.device)
        return _named(source, f"users {seed}", dataset=replace(data, users=data.users[order]))
    moved = _moved(source.frame[users], None, rng)
    return _named(source, f"users {seed}", frame=with_columns(source.frame, {users: moved}))


def marked_users(source: Source, users: str, *, seed: int) -> Source:
    """Return a table with additional features that identify each user.

    Raises:
        InputError: the records are not rows of a table.
    """
    if source.dataset is not None or source.pixels is not None:
        raise InputError("users can be marked in the columns of a table only")
    rng = stream(seed, "altered", "marks")
    owners = pd.factorize(source.frame[users])[0]
    marks = rng.normal(size=(int(owners.max()) + 1, MARKS))
    columns = {_free(f"{MARK} {at}", source.frame): marks[owners, at] for at in range(MARKS)}
    return _named(source, f"marks {seed}", frame=with_columns(source.frame, columns))


def random_label(source: Source, label: str, *, seed: int) -> Source:
    """Return data with random labels.

    A label of a table or of images gets one of ten values at random; the labels of a task's records
    are permuted, since the model's outputs are fixed.
    """
    rng = stream(seed, "altered", "labels")
    if source.dataset is not None:
        data = source.dataset
        order = torch.from_numpy(rng.permutation(len(data.y))).to(data.y.device)
        return _named(source, f"labels {seed}", dataset=replace(data, y=data.y[order]))
    drawn = [f"label {one}" for one in rng.integers(LABELS, size=len(source.frame))]
    return _named(source, f"labels {seed}", frame=with_columns(source.frame, {label: drawn}))


def with_planted_secret(source: Source, secret: str) -> tuple[Source, str]:
    """Return data with a planted secret, and a sentence that describes the leak.

    A table gets a copy of the secret's column; images get a stamp with a brightness for each value;
    the records of a task get the secret as their label.

    Raises:
        InputError: these data cannot carry the secret.
    """
    if source.dataset is not None:
        return _as_label(source, source.dataset, secret)
    require(secret in source.frame, f"the table has no column {secret!r}")
    if source.pixels is not None:
        codes, values = pd.factorize(source.frame[secret], sort=True)
        return (
            _named(source, f"stamp {secret}", pixels=_stamped(source.pixels, codes, len(values))),
            f"a square of each image has a brightness that reveals {secret!r}",
        )
    name = _free(f"{COPY}{secret}", source.frame)
    frame = with_columns(source.frame, {name: source.frame[secret]})
    return _named(source, f"copy {secret}", frame=frame), (
        f"a feature of each record is a copy of {secret!r}"
    )


def _as_label(source: Source, data: Dataset, secret: str) -> tuple[Source, str]:
    codes = data.secrets[secret]
    if data.y.is_floating_point() or data.y.ndim != 1 or int(codes.max()) > int(data.y.max()):
        raise InputError(
            "the records of a task can show a secret only as their label, and these labels are not "
            f"classes, or fewer than the values of {secret!r}"
        )
    label = codes.to(data.y.dtype).to(data.y.device)
    return (
        _named(source, f"label {secret}", dataset=replace(data, y=label)),
        f"the label of each record is its {secret!r}",
    )


def _moved(
    values: "pd.Series[Any]", owners: Ints | None, rng: np.random.Generator
) -> "pd.Series[Any]":
    """Return permuted values; owners with one value each exchange values as a whole."""
    if owners is not None:
        first = values.groupby(owners).first()
        same = values.groupby(owners).nunique(dropna=False).max() <= 1
        if same and len(first) < len(values):
            order = rng.permutation(len(first))
            taken = first.iloc[order].set_axis(first.index)
            moved = pd.Series(taken.reindex(owners).to_numpy(), index=values.index)
            return moved.astype(values.dtype)
    order = rng.permutation(len(values))
    return values.iloc[order].set_axis(values.index)


def _stamped(pixels: PixelArray, codes: Ints, values: int) -> PixelArray:
    changed = pixels.copy()
    height, width = (max(1, side // STAMP) for side in pixels.shape[2:])
    levels = np.linspace(0, 255, max(values, 2)).astype(np.uint8)
    changed[:, :, :height, :width] = levels[codes][:, None, None, None]
    return changed


def _free(name: str, frame: pd.DataFrame) -> str:
    while name in frame:
        name += "'"
    return name


def _named(source: Source, change: str, **changes: Any) -> Source:
    content = f"{source.fingerprint} {change}".encode()
    return replace(source, fingerprint=hashlib.sha256(content).hexdigest(), **changes)

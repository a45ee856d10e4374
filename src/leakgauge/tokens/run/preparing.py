"""Prepares a run: split records, the network, the watched layers, and the description."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Task
from leakgauge.data import Source
from leakgauge.data.split_members import dealt
from leakgauge.defenses import Defense, none, parse_defense
from leakgauge.gradients import check_vectorisable
from leakgauge.results.measurements import Run
from leakgauge.runs.question import Prepared
from leakgauge.runs.records import (
    describe_run,
    records_of,
    refuse_of_a_table,
    roles_for,
)
from leakgauge.runs.spec import NONE, declared
from leakgauge.tokens.features import WATCHED, check_names, default_layers
from leakgauge.tokens.gathering import fewest_records, roomy_records
from leakgauge.tokens.spec import TimelineSpec
from leakgauge.tokens.words import QUESTION, STREAM
from leakgauge.training.local import in_evaluation

TEST = 0.2
"""Share of the records in the test set."""

FEWEST_TEST = 10
"""Smallest number of test records for an accuracy."""

ONE = (
    "batches have one record, so a step's gradient is that record's own: the figures are about "
    "single records, and a live monitor could not compare the records of a step"
)


NOT_IMAGES = "no attack runs: it rebuilds images, and the records are not images"

NO_PAIRS = "a stream has no pairs before the training, so sub-epoch 0 is not measured"


@dataclass(frozen=True, eq=False)
class TokensPrepared(Prepared):
    """Everything that a run works on.

    Attributes:
        spec: settings, with the columns' roles.
        source: the data.
        task: the model at its first parameters, and its loss.
        data: all records, with an encoding fitted on the private ones alone.
        private: training rows ``[k]``.
        test: test rows ``[t]``; no user has rows in both.
        features: name of the module that outputs the data features; None for the input of the last
            layer.
        layers: names of the watched layers.
        are_images: whether records are images of pixels.
        run: settings and facts for the report.
    """

    spec: TimelineSpec
    task: Task
    data: Dataset
    private: Tensor
    test: Tensor
    features: str | None
    layers: Sequence[str]
    are_images: bool
    run: Run

    def rows(self, index: Tensor) -> Dataset:
        """Return the records at some rows."""
        return self.data.rows(index.to(self.data.y.device))


def prepare(spec: TimelineSpec, source: Source) -> TokensPrepared:
    """Split and encode the records, build the network and find the watched layers.

    Args:
        spec: settings that ``check`` accepted.
        source: the data.

    Raises:
        InputError: a role is missing or wrong, the data are too few or do not fit, or a name does
            not exist.
    """
    spec = replace(spec, **_resolved(spec, source))
    records = records_of(spec, source, hidden=spec.hidden, net=spec.net)
    users = records.users if spec.by_user else None
    private, test = _split(spec, len(records.y), users)
    spec, smaller = _fitting(spec, len(private), len(test))
    task, data = records.encode(private, ())
    data = (data if spec.by_user else replace(data, users=None)).to(spec.device)
    for text in spec.defenses:
        defense_of(spec, text).check(task)
    still = in_evaluation(task)
    first = data.rows(private[:2].to(data.y.device))
    check_vectorisable(still, first.x, first.y)
    features, layers = _watched(spec, source, still, first.x)
    are_images = source.pixels is not None or _looks_like_images(data.x)
    run = describe_run(
        spec,
        source,
        records,
        task,
        settings={
            "features": features or "input of the last layer",
            "layers": list(layers),
        },
        parts={"private": len(private), "test": len(test)},
    )
    run = replace(
        run,
        notes=(*run.notes, *smaller, *_notes(spec, len(private), are_images=are_images)),
    )
    return TokensPrepared(
        spec, source, task, data, private, test, features, layers, are_images, run
    )


def _resolved(spec: TimelineSpec, source: Source) -> dict[str, Any]:
    """Return the roles of columns that the data fill in."""
    if source.dataset is not None:
        refuse_of_a_table(spec)
        return {}
    roles = roles_for(spec, source)
    bins = {name: ranges for name, ranges in roles.bins.items() if name == roles.label}
    return {"label": roles.label, "group": roles.group, "drop": roles.drop, "bins": bins}


def defense_of(spec: TimelineSpec, text: str) -> Defense:
    """Return the defense named by a text."""
    return none() if text == NONE else parse_defense(text, batch_size=spec.batch_size)


def _split(spec: TimelineSpec, count: int, users: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the private and the test rows; no user has rows in both."""
    owners = np.arange(count) if users is None else users.cpu().numpy()
    ends = np.rint(np.cumsum([1 - TEST, TEST]) * count).astype(np.int64)
    private, test = (
        torch.from_numpy(np.sort(part))
        for part in dealt(owners, ends, rng=stream(spec.seed, QUESTION, "sides"))
    )
    return private, test


def _fitting(spec: TimelineSpec, private: int, test: int) -> tuple[TimelineSpec, list[str]]:
    """Return settings and notes; a default batch that does not fit gets smaller.

    Raises:
        InputError: the records are too few for the batches that the user names, or for any.
    """
    size = spec.batch_size
    need, least = (2 * one if spec.pairs == STREAM else fewest_records(one) for one in (size, 1))
    fits = test >= FEWEST_TEST and private >= least
    if private < need and fits and size == declared(TimelineSpec)["batch_size"].default:
        smaller = replace(spec, batch_size=private // least)
        note = (
            f"the default batch of {size} records needs {need} private ones, and there are "
            f"{private}; batches of {smaller.batch_size} are used. Another size: --batch-size"
        )
        return smaller, [note]
    require(
        private >= need and test >= FEWEST_TEST,
        f"{private + test} records leave {private} to train on and {test} to test on; batches of "
        f"{size} need {need} and {FEWEST_TEST}: bring more records, or take a smaller "
        "--batch-size",
    )
    return spec, []


def _watched(
    spec: TimelineSpec, source: Source, task: Task, x: Tensor
) -> tuple[str | None, list[str]]:
    known = WATCHED.get(spec.net) if source.pixels is not None else None
    features, layers = spec.features, list(spec.layers)
    if known is not None:
        features, layers = features or known.features, layers or list(known.layers)
    check_names(task, x, features, layers)
    return features, layers or default_layers(task, x)


def _notes(spec: TimelineSpec, private: int, *, are_images: bool) -> list[str]:
    """Return notes on the limits of these settings and records."""
    enough = roomy_records(spec.batch_size)
    few = (
        f"pairs are made of {min(private, spec.records)} records, so the held-out figures are "
        f"low: batches of {spec.batch_size} need {enough} or more"
    )
    said = {
        few: spec.pairs != STREAM and min(private, spec.records) < enough,
        ONE: spec.batch_size == 1,
        NO_PAIRS: spec.pairs == STREAM and 0 in spec.checkpoints,
        NOT_IMAGES: spec.images > 0 and not are_images,
    }
    return [text for text, holds in said.items() if holds]


def _looks_like_images(x: Tensor) -> bool:
    return x.dim() == 4 and x.shape[1] in (1, 3) and min(x.shape[2:]) > 1

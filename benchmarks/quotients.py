"""Compare the panel with and without the readers of records, and both with the features' means.

Run: ``python benchmarks/quotients.py TABLE... [--seeds 3] [--rounds 10] [--placebos 0]
[--placebo-rounds 1]``. The readers are ``quotients`` and, over several rounds, ``round-means``. A
table is ``NAME`` or ``FILE:LABEL:SECRET[:GROUP]``, or ``made-explained`` or ``made-coin``: 20,000
rows of ten numbers, four of which the secret shifts by 0.35 standard deviations, with a label that
three others explain or that a coin decides. Each is audited for its property without a defense,
with the defaults. One training and one set of adversaries give both headlines: those of the panel
without the readers and with them. The table has the mean over the seeds, and the mean difference of
the headline and the baseline of feature means with its standard deviation. ``--placebos N`` audits
the first table N times with its secret shuffled among the records (or users), and counts the
intervals above chance. It ends with an error if more than 5 of 100 are.
"""

import argparse
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from leakgauge.data import Roles, open_data
from leakgauge.data.altered import shuffled
from leakgauge.data.source import Source, frame_source
from leakgauge.inference.checking import check
from leakgauge.inference.run import (
    GameStage,
    attack_jointly,
    attack_round,
    measure,
    trajectory,
)
from leakgauge.inference.run.preparing import prepare
from leakgauge.inference.spec import InferenceSpec
from leakgauge.results.measurements import HEADLINE, Estimate, Measurement
from leakgauge.results.scores import AUROC, FEATURES_ALONE

ADDED = "quotients"
ALLOWED = 0.05
"""Largest share of placebos with an interval above chance."""


MADE = ("made-explained", "made-coin")


def made(name: str) -> Source:
    """Return a made table."""
    rng, n = np.random.default_rng(0), 20_000
    secret, x = rng.integers(0, 2, n), rng.normal(size=(n, 10))
    x[:, :4] += 0.35 * (secret[:, None] - 0.5)
    label = (x[:, 4] + x[:, 5] - x[:, 6] + rng.normal(size=n) > 0).astype(int)
    if name == "made-coin":
        label = rng.integers(0, 2, n)
    frame = pd.DataFrame(x.round(4), columns=[f"f{i}" for i in range(10)])
    words = {"sex": np.where(secret, "F", "M"), "y": np.where(label, "yes", "no")}
    return frame_source(frame.assign(**words), name=name)


def opened(text: str) -> tuple[str, Source, dict[str, str]]:
    """Return the name, the data and the columns' roles of a table."""
    name, *roles = text.split(":")
    if name in MADE:
        return name, made(name), {"label": "y", "secret": "sex"}
    return (
        name.rpartition("/")[2],
        open_data(name),
        dict(zip(("label", "secret", "group"), roles, strict=False)),
    )


def stage_of(data: Source, settings: dict[str, Any]) -> GameStage:
    """Return the stage of property inference."""
    spec = InferenceSpec(ask=("property",), **settings)
    check(spec)
    (stage,) = prepare(spec, data).stages
    return stage


def without(stage: GameStage) -> GameStage:
    """Return the stage with the panel of before."""
    attacks = tuple(one for one in stage.attacks if one.name != ADDED)
    return replace(stage, attacks=attacks, panel=tuple(n for n in stage.panel if n != ADDED))


def headline(found: list[Measurement]) -> Estimate:
    """Return the AUROC of the headline."""
    (one,) = (m.estimate for m in found if (m.metric, m.round) == (AUROC, HEADLINE))
    return one


def audited(stage: GameStage) -> tuple[Estimate, Estimate, float]:
    """Return the headline without and with quotients, and the AUROC of the feature means."""
    *starts, final = trajectory(stage)
    rounds = [attack_round(stage, number, params) for number, params in enumerate(starts, start=1)]
    together = {id(stage): attack_jointly(stage, starts)}
    before, after = (
        measure(
            one, rounds, final, dataset="data", label="label", jointly=together.get(id(one), {})
        )
        for one in (without(stage), stage)
    )
    (means,) = (m.estimate.value for m in after if m.metric == FEATURES_ALONE)
    return headline(before), headline(after), means


def compare(text: str, seeds: int, rounds: int, trials: int) -> None:
    """Print the line of a table."""
    name, data, roles = opened(text)
    began, found = time.process_time(), []
    for seed in range(seeds):
        stage = stage_of(data, {**roles, "rounds": rounds, "trials": trials, "seed": seed})
        before, after, means = audited(stage)
        found.append((before.value, after.value, means))
    columns = [statistics.mean(column) for column in zip(*found, strict=True)]
    gaps = [after - means for _, after, means in found]
    spread = statistics.stdev(gaps) if seeds > 1 else 0.0
    shown = "  ".join(f"{one:.3f}" for one in columns)
    seconds = (time.process_time() - began) / seeds
    gap = f"{statistics.mean(gaps):+.3f} ± {spread:.3f}"
    print(f"{name:22}  {shown}  {gap}  {seconds:.0f} CPU s", flush=True)


def placebos(text: str, count: int, rounds: int) -> None:
    """Print how many audits of shuffled secrets have an interval above chance."""
    _, data, roles = opened(text)
    known = data.roles or Roles("")
    secret = roles.get("secret") or known.secrets[0]
    group = roles.get("group") or known.group
    above = {"without": 0, "with": 0}
    for seed in range(count):
        moved = shuffled(data, secret, users=group, seed=seed)
        settings = {**roles, "rounds": rounds, "trials": 500, "private": 2000, "seed": seed}
        before, after, _ = audited(stage_of(moved, {**settings, "shadow": 400}))
        above["without"] += before.low > 0.5
        above["with"] += after.low > 0.5
    print(f"placebos above chance: {above} of {count}", flush=True)
    if above["with"] > ALLOWED * count:
        sys.exit(f"{above['with']} of {count} placebos have an interval above chance")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--placebos", type=int, default=0)
    parser.add_argument("--placebo-rounds", type=int, default=1)
    asked = parser.parse_args()
    if asked.placebos:
        placebos(asked.tables[0], asked.placebos, asked.placebo_rounds)
        return
    print(f"{'table':22}  before  after  feature means  difference")
    for text in asked.tables:
        compare(text, asked.seeds, asked.rounds, asked.trials)


if __name__ == "__main__":
    main()

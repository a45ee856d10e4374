"""Compare the panel's crossed forests with the paper's forests: processor time and AUROC.

A forest of the paper is grown on the whole shadow, and once more without each fold of it to be
judged. A crossed forest uses the trees of the folds for both. Both panels attack the same batches
of the same trainings.

Run: ``python benchmarks/panel_trees.py [--tables randhie adult] [--seeds 3] [--rounds 10]``. It
prints the mean AUROC of the panel with the standard deviation over the seeds, and the ratio of the
processor times of whole audits. It ends with an error if the mean AUROC of a table falls by more
than the spread of its seeds.
"""

import argparse
import statistics
import sys
import time
from typing import Any
from unittest import mock

import leakgauge as lg
from leakgauge.inference.catalog import panel_of
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.results.scores import AUROC

PAPER, CROSSED = "forest", "crossed-forest"
TABLES = ("randhie", "adult", "crema_d", "location30")
SETTINGS: dict[str, dict[str, Any]] = {
    "adult": {"batch_size": 2},  # larger batches reveal it always
    "location30": {"label": "y", "secret": "x35", "batch_size": 2},
}
SPREAD = 2.0
"""Largest fall of the mean AUROC, in standard errors of a difference of means."""


def audited(table: str, forest: str, seed: int, **options: Any) -> tuple[float, float]:
    """Return the AUROC of the panel over all rounds, and the seconds of processor time.

    Args:
        table: name of the table.
        forest: name of the panel's forests.
        seed: seed of the audit.
        options: settings of the audit.
    """

    def panel(*given: Any, **more: Any) -> tuple[str, ...]:
        return tuple(name.replace(CROSSED, forest) for name in panel_of(*given, **more))

    began = time.process_time()
    options = {**SETTINGS.get(table, {}), **options}
    with mock.patch("leakgauge.inference.checking.panel_of", panel):
        found = lg.audit(table, "property", seed=seed, **options)
    seconds = time.process_time() - began
    (auroc,) = (
        one.estimate.value
        for one in found.measurements
        if one.metric == AUROC and one.adversary == "panel" and one.round == ACCUMULATED
    )
    return auroc, seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=5000)
    asked = parser.parse_args()
    sizes = {"rounds": asked.rounds, "trials": asked.trials}
    worse = []
    print(f"{'table':12}  AUROC, forests   AUROC, crossed   time, forests / crossed")
    for table in asked.tables:
        runs: dict[str, list[tuple[float, float]]] = {PAPER: [], CROSSED: []}
        for seed in range(asked.seeds):
            for forest, each in runs.items():
                each.append(audited(table, forest, seed, **sizes))
        means, spreads = [], []
        for each in runs.values():
            values = [auroc for auroc, _ in each]
            means.append(statistics.mean(values))
            spreads.append(statistics.stdev(values) if len(values) > 1 else 0.0)
        ratios = [slow / fast for (_, slow), (_, fast) in zip(*runs.values(), strict=True)]
        shown = "   ".join(f"{m:.3f} +- {s:.3f}" for m, s in zip(means, spreads, strict=True))
        print(f"{table:12}  {shown}   {statistics.median(ratios):.2f}", flush=True)
        error = (sum(one**2 for one in spreads) / asked.seeds) ** 0.5
        if asked.seeds > 1 and means[0] - means[1] > SPREAD * error:
            worse.append(table)
    if worse:
        sys.exit(f"the AUROC falls by more than the spread of the seeds: {', '.join(worse)}")


if __name__ == "__main__":
    main()

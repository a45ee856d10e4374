"""Pool the layers of all runs of a grid, as in Table 1 of Mo et al. (2021).

    leakgauge run experiments/mo21/figure2.yaml --size cpu --only label=gender,Eyeglasses --out mo21
    python experiments/mo21/table1.py mo21

A point is a layer of one network on one dataset and task: the means over the seeds. All finished
cells of the folder count; without ``--only`` the task smiling adds its points. The pooled
correlation is followed by the median of those within single runs, because pooled points also
compare datasets. The last table has the printed F-norm of each layer, normalised over the layers of
its network (Figure 8).
"""

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from leakgauge.layers.correlation import pearson
from leakgauge.layers.metrics import CORRELATION, INFORMATION, SENSITIVITIES, SIZE
from leakgauge.layers.run.measuring import by_layer
from leakgauge.results.measurements import read_measurements
from leakgauge.results.scores import AUROC

Points = dict[tuple[str, str, str], dict[str, list[float]]]
"""Values over the seeds by metric, for each (network, cell, layer)."""

Runs = dict[tuple[str, str], list[float]]
"""Correlations within single runs, for each (network, metric)."""


def read(folder: Path) -> tuple[Points, Runs]:
    """Return the figures of all layers of all finished cells, and the correlations of each run."""
    points: Points = defaultdict(lambda: defaultdict(list))
    runs: Runs = defaultdict(list)
    for cell in sorted((folder / "cells").iterdir()):
        about: dict[str, Any] = yaml.safe_load((cell / "cell.yaml").read_text())
        settings = about["identity"]["settings"]
        name = f"{settings['data']}, {settings['label']}, {settings['secret']}"
        measurements = read_measurements(cell)
        for metric in (AUROC, INFORMATION, *SENSITIVITIES, SIZE):
            for layer, value in by_layer(measurements, metric).items():
                points[settings["net"], name, layer][metric].append(value)
        for one in measurements:
            kind, _, metric = one.metric.partition("_")
            if kind == CORRELATION:
                runs[settings["net"], metric].append(one.estimate.value)
                runs["all", metric].append(one.estimate.value)
    return points, runs


def main(folder: Path) -> None:
    """Print the pooled correlations, and the sensitivity normalised over layers."""
    points, runs = read(folder)
    nets = list(dict.fromkeys(net for net, _, _ in points))
    print(f"{'network':8} {'measure':24} {'n':>3} {'R':>7} {'t':>7} {'p':>9} {'by run':>7}")
    for net in (*nets, "all"):
        chosen = [one for (of, _, _), one in points.items() if net in (of, "all")]
        for metric in (INFORMATION, *SENSITIVITIES, SIZE):
            able = [one for one in chosen if metric in one]
            found = pearson(*([np.mean(one[key]) for one in able] for key in (metric, AUROC)))
            if found is not None:
                row = f"{found.n:3} {found.r:7.3f} {found.t:7.2f} {found.p:9.2g}"
                row += f" {np.median(runs[net, metric]):7.3f}"
                print(f"{net:8} {metric:24} {row}")
    sums: dict[tuple[str, str], float] = defaultdict(float)
    printed = SENSITIVITIES[0]
    for (net, cell, _), one in points.items():
        sums[net, cell] += float(np.mean(one[printed]))
    for (net, cell, layer), one in points.items():
        share = float(np.mean(one[printed])) / sums[net, cell]
        print(f"{net:8} {cell:32} layer {layer:6} {share:.3f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Print the figures of each layer over the seeds, as in Figures 5 to 9 of Mo et al. (2021).

    leakgauge run experiments/mo21/figure5.yaml --size trained --out five
    python experiments/mo21/by_layer.py five

A row shows the mean over the seeds and half the width of a 95 % t interval. The share of the F-norm
(Eq. 10) is over the layers of the network (Figure 8); the last column has the upper bound
of I(X; T) over log2 N (Figure 9). R is the correlation of a measure with the AUROC, seed by seed.
Where cells differ in the property alone, the last rows have the R of the V-information of one
property with the AUROC of another (Figure 7).
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import yaml

from leakgauge.layers.correlation import pearson
from leakgauge.layers.metrics import INFORMATION, KERNEL_SHARE, SENSITIVITIES
from leakgauge.layers.run.measuring import by_layer
from leakgauge.results.measurements import ACCUMULATED, Measurement, read_measurements
from leakgauge.results.scores import AUROC, BALANCED_ACCURACY
from leakgauge.results.statistics import mean_estimate

PRINTED = SENSITIVITIES[0]
VARIED = ("rounds", "init", "lr", "snapshots", "all_gradients", "coordinates", "side")

Seeds = dict[int, list[Measurement]]
"""The measurements of a cell, by seed."""

Cells = dict[str, dict[str, Seeds]]
"""Cells by the words that describe all but their property, then by the property."""


def read(folders: Iterable[Path]) -> Cells:
    """Return the measurements of all finished cells."""
    cells: Cells = defaultdict(lambda: defaultdict(dict))
    for folder in folders:
        for cell in sorted((folder / "cells").iterdir()):
            about: dict[str, Any] = yaml.safe_load((cell / "cell.yaml").read_text())
            of = about["identity"]["settings"]
            words = f"{of['net']}, {of['data']}, task {of['label']}, "
            words += ", ".join(f"{name} {of[name]}" for name in VARIED if of.get(name) is not None)
            cells[words][of["secret"]][of["seed"]] = read_measurements(cell)
    return cells


def of_attack(found: Sequence[Measurement], metric: str, attack: str) -> dict[str, float]:
    """Return an attack's figure for each layer."""
    return {
        one.details["layer"]: one.estimate.value
        for one in found
        if one.metric.partition(": ")[0] == metric
        and one.adversary == attack
        and one.round == ACCUMULATED
        and "layer" in one.details
    }


def shown(values: Sequence[float]) -> str:
    """Return the mean, and half the width of its interval where there are several values."""
    found = mean_estimate(values)
    return f"{found.value:.3f}" + (f" +- {found.high - found.value:.3f}" if found.n > 1 else "")


def print_attack(seeds: Sequence[Sequence[Measurement]], attack: str) -> None:
    """Print the rows of one attack, and the correlations of each seed."""
    aurocs, bits = (
        [of_attack(one, metric, attack) for one in seeds] for metric in (AUROC, INFORMATION)
    )
    norms, shares = ([dict(by_layer(one, m)) for one in seeds] for m in (PRINTED, KERNEL_SHARE))
    for layer in aurocs[0]:
        of_norm = [one[layer] / sum(one.values()) for one in norms if layer in one]
        columns = [shown([one[layer] for one in each]) for each in (aurocs, bits)]
        columns.append(shown(of_norm) if of_norm else "none")
        columns += [shown([one[layer] for one in shares])] if layer in shares[0] else []
        print(f"  {attack:8} {layer:6} " + "  ".join(columns))
    for name, measure in (("V-information", bits), ("printed F-norm", norms)):
        found = [correlation(one, auroc) for one, auroc in zip(measure, aurocs, strict=True)]
        print(f"  {attack:8} R of {name}: {', '.join(found)}")


def correlation(measure: Mapping[str, float], auroc: Mapping[str, float]) -> str:
    """Return R over the layers that have both figures."""
    layers = [layer for layer in auroc if layer in measure]
    pair = pearson([measure[layer] for layer in layers], [auroc[layer] for layer in layers])
    return "none" if pair is None else f"{pair.r:.3f}"


def print_across(properties: Mapping[str, Seeds]) -> None:
    """Print the R of one property's V-information with another's AUROC, seed by seed."""
    for told, other in permutations(sorted(properties), 2):
        seeds = sorted(properties[told].keys() & properties[other].keys())
        for attack in sorted(attacks_of(properties[told][seeds[0]]) if seeds else ()):
            found = [
                correlation(
                    of_attack(properties[told][seed], INFORMATION, attack),
                    of_attack(properties[other][seed], AUROC, attack),
                )
                for seed in seeds
            ]
            names = f"V-information of {told} with the AUROC of {other}"
            print(f"  {attack:8} R of the {names}: {', '.join(found)}")


def attacks_of(found: Iterable[Measurement]) -> set[str]:
    """Return the attacks that have an AUROC of some layer."""
    return {one.adversary for one in found if one.metric.startswith(f"{AUROC}: ")}


def main(folders: Sequence[Path]) -> None:
    """Print one table for each cell."""
    for words, properties in sorted(read(folders).items()):
        for secret, by_seed in sorted(properties.items()):
            seeds = [by_seed[seed] for seed in sorted(by_seed)]
            print(f"{words}, property {secret}: {len(seeds)} seeds")
            for metric in ("accuracy", BALANCED_ACCURACY):
                values = [m.estimate.value for one in seeds for m in one if m.metric == metric]
                print(f"  {metric} " + ", ".join(f"{value:.3f}" for value in values))
            print("  attack   layer  AUROC, V-information (bits), share of F-norm, I(X; T)/log2 N")
            for attack in sorted(attacks_of(seeds[0])):
                print_attack(seeds, attack)
        print_across(properties)


if __name__ == "__main__":
    main([Path(one) for one in sys.argv[1:]])

"""Print the size of the paper's gap under each reading of its estimate, beside the paper's.

    leakgauge run experiments/tokens/readings.yaml --size cpu --out tokens-readings
    python experiments/tokens/readings.py tokens-readings

Each cell is the mean over seeds with a Student t interval over them; of a single seed it is that
run's figure, with its interval over blocks of batches. The gap is the critic's mean score of
matched minus that of mismatched pairs. In-sample: on the critic's training pairs. Evaluated: with
the stream's critic on 200 batches at the checkpoint, with the checkpoint's critic on batches of
other records.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from leakgauge.results.measurements import Estimate, read_measurements
from leakgauge.results.statistics import mean_estimate
from leakgauge.tokens.metrics import GAP, GAP_IN_SAMPLE, GAP_PLACEBO, of_critic
from leakgauge.tokens.settings import PAPER as PAPERS
from leakgauge.tokens.words import AUTOENCODER

NAMES = {
    of_critic(figure, AUTOENCODER, PAPERS): name
    for figure, name in (
        (GAP_IN_SAMPLE, "in-sample"),
        (GAP, "evaluated"),
        (GAP_PLACEBO, "evaluated, placebo"),
    )
}


def papers() -> dict[int, float]:
    """Return the paper's gap on LeNet by sub-epoch."""
    grid = yaml.safe_load((Path(__file__).parent / "lenet.yaml").read_text())
    name = of_critic(GAP_IN_SAMPLE, AUTOENCODER, PAPERS)
    return {one["round"]: one["value"] for one in grid["paper"] if one["metric"] == name}


def lines(folder: Path) -> Iterator[str]:
    """Yield a Markdown table of the cells of a finished run."""
    found: dict[tuple[str, int, str], dict[int, dict[int, Estimate]]] = defaultdict(dict)
    for cell in sorted((folder / "cells").iterdir()):
        settings = yaml.safe_load((cell / "cell.yaml").read_text())["identity"]["settings"]
        for one in read_measurements(cell):
            if one.metric in NAMES and isinstance(one.round, int):
                row = found[settings["pairs"], settings["width"], NAMES[one.metric]]
                row.setdefault(one.round, {})[settings["seed"]] = one.estimate
    steps = sorted({step for row in found.values() for step in row})
    yield "| pairs | width | gap | seeds | " + " | ".join(map(str, steps)) + " |"
    yield "|---" * (4 + len(steps)) + "|"
    known = papers()
    printed = " | ".join(f"{known[step]:.2f}" if step in known else "" for step in steps)
    yield f"| paper | | | | {printed} |"
    for (pairs, width, figure), row in sorted(found.items()):
        seeds = max(map(len, row.values()))
        cells = " | ".join(_cell([*row[step].values()]) if step in row else "" for step in steps)
        yield f"| {pairs} | {width} | {figure} | {seeds} | {cells} |"


def _cell(seeds: Sequence[Estimate]) -> str:
    one = seeds[0] if len(seeds) == 1 else mean_estimate([each.value for each in seeds])
    ends = f" ({one.low:.2f} to {one.high:.2f})" if one.low < one.high else ""
    return f"{one.value:.2f}{ends}"


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("name the --out folder of a finished run")
    print("\n".join(lines(Path(sys.argv[1]))))

"""Hold numbers in the rows of the reproductions against the grid files and the code."""

from collections.abc import Callable
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml

from leakgauge.catalog import questions
from leakgauge.data.split import split_records
from leakgauge.data.split_members import SHARES
from leakgauge.inference.adversaries.encoder import Encoder
from leakgauge.inference.adversaries.forest import Forest
from leakgauge.inference.spec import TRIALS
from leakgauge.inversion.search.presets import presets_for
from leakgauge.layers.observation import KernelMax
from leakgauge.layers.run.observing import KEPT
from leakgauge.layers.spec import LayersSpec
from leakgauge.membership.adversaries.supervised import Training
from leakgauge.membership.spec import MembershipSpec
from leakgauge.runs.grid import unfold
from leakgauge.runs.grid_file import read_grid_file
from leakgauge.tokens.networks import CRITIC_HIDDEN, EMBEDDED, HIDDEN, LATENT
from leakgauge.tokens.run.streaming import MOST
from leakgauge.tokens.settings import PAIRS_OF_PAPER, SLOWER, CriticSettings
from leakgauge.tokens.spec import TimelineSpec
from support.papers import FOLDER, ROOT, rows

PAPER, SMALL = "paper", "small"
EXPERIMENTS = ROOT / "experiments"
PATHS = [
    pytest.param(one, marks=pytest.mark.slow)
    if one.parent.name == "agic" or one.stem == "table10"
    else one
    for one in sorted(EXPERIMENTS.glob("*/*.yaml"))
]


@cache
def cells(name: str, size: str = PAPER) -> list[Any]:
    """Return the cells of a grid file at one size, as specs."""
    file = read_grid_file(EXPERIMENTS / f"{name}.yaml").model_copy(update={"paper": []})
    grid = unfold(file, questions(), size=size)
    return [cell for each in grid.grids for cell in each]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_file_of_experiments_unfolds_at_all_sizes(path: Path) -> None:
    """Files of AGIC have many figures of the paper, each compared with each cell."""
    assert unfold(read_grid_file(path), questions()).cells


def updates(name: str, **where: Any) -> int:
    """Return the number of updates of the first cell with these settings."""
    cell = next(one for one in cells(name) if all(getattr(one, k) == v for k, v in where.items()))
    return int(cell.images // cell.records_per_update)


def rate(name: str) -> float:
    """Return the server's rate of the cells with several epochs."""
    (found,) = {one.server_lr for one in cells(name) if one.epochs > 1}
    return float(found)


def known(name: str) -> str:
    """Return the pairs of known records of Table VI's file, as the page writes them."""
    pairs = [f"{one.known_members} and {one.known_others}" for one in cells(name)]
    return ", ".join(dict.fromkeys(pairs[:3]))


def share_of_tests() -> float:
    """Return the share of the test records, which no setting changes."""
    return float(signature(split_records).parameters["test_fraction"].default)


def weights() -> str:
    """Return the four weights of the total variation, as the page writes them."""
    found = []
    for large in (False, True):
        for trained in (False, True):
            each = presets_for(trained=trained, large=large)
            both = {each[name].total_variation for name in ("agic", "inverting-gradients")}
            assert len(both) == 1
            found.append(both.pop())
    first, second, third, last = (f"{value:.0e}".replace("e-0", "e-") for value in found)
    return f"{first}, {second}, {third} or {last}"


WORDS: list[tuple[str, str, Callable[[], str]]] = [
    ("agic", "Table II, trained", lambda: f"{updates('agic/table2', side=224)} of 100 updates"),
    ("agic", "Table III", lambda: f"{updates('agic/table3')} of 100 updates"),
    ("agic", "Table III", lambda: f"rate {rate('agic/table3') * 1e4:g}e-4"),
    ("agic", "Table IV, single gradients of CIFAR", lambda: "100 batches of 1 and 100 of 4"),
    ("agic", "Table V,", lambda: f"{cells('agic/table5')[0].images} of 1,000 images"),
    ("agic", "Table VI,", lambda: f"{cells('agic/table6')[0].images} images"),
    ("agic", "V-A, total variation", weights),
    ("ccs24", "4.1, encoder", lambda: f"{Encoder().hidden} ReLUs"),
    ("ccs24", "4.1, encoder", lambda: f"epochs ({Encoder().epochs})"),
    ("ccs24", "4.1, encoder", lambda: f"shadow batches ({Encoder().batches:,})"),
    ("ccs24", "5.1.3, forest", lambda: f"shadow batches ({Forest().batches:,})"),
    ("ccs24", "5.1.3, forest", lambda: f"{Forest().trees} trees"),
    ("ccs24", "user inference", lambda: f"{TRIALS['user']:,} trials"),
    ("nasr19", "Table VI,", lambda: known("nasr19/table6")),
    ("nasr19", "Table II,", lambda: f"{100 * SHARES[0]:g} % of the members are known"),
    ("nasr19", "II-D, encoder", lambda: f"{Training.nasr19().epochs} epochs"),
    ("nasr19", "Table X,", lambda: f"{cells('nasr19/table10')[0].size} records for each"),
    ("nasr19", "Table XII,", lambda: f"{cells('nasr19/table12')[0].rounds} rounds"),
    ("nasr19", "Table XIII,", lambda: f"{cells('nasr19/table13')[0].size} records"),
    ("nasr19", "Eq. 2, ascent", lambda: f"not printed: {MembershipSpec().ascent_rate}"),
    ("ccs24", "5.1.1, three-fold", lambda: f"({100 * share_of_tests():g} % here)"),
    ("ccs24", "Figure 8", lambda: f"trials ({cells('ccs24/figure8')[0].trials:,})"),
    ("tokens", "3.2, autoencoder", lambda: f"widths ({HIDDEN}, {LATENT})"),
    ("tokens", "3.2, critic", lambda: f"widths ({CRITIC_HIDDEN}, {EMBEDDED})"),
    ("tokens", "matched pairs during", lambda: f"at most {MOST:,} pairs"),
    ("tokens", "matched pairs at", lambda: f"{PAIRS_OF_PAPER} batches"),
    ("tokens", "A, rates", lambda: f"{CriticSettings().lr:.0e}".replace("e-0", "e-")),
    ("tokens", "A, rates", lambda: {0.2: "a fifth of it"}[SLOWER]),
    ("tokens", "A, Adam", lambda: f"text: {TimelineSpec().lr:g}"),
    ("tokens", "4.1, DLG", lambda: f"{cells('tokens/lenet')[0].attack_iterations}"),
    ("mo21", "Eq. 10", lambda: f"{LayersSpec().records} records"),
    ("mo21", "5, rounds before", lambda: f"ours; {LayersSpec().rounds}, the paper's example"),
    ("mo21", "5, random forest", lambda: f"more than {KernelMax().most:,} numbers"),
    ("mo21", "5, random forest", lambda: f"{KEPT / 2**30:g} GiB"),
    ("mo21", "5, CelebA", lambda: f"`side: {cells('mo21/celeba64', SMALL)[0].side}`"),
    ("mo21", "5, CelebA", lambda: "{0} x {0} pixels in `figure2".format(*_side("mo21/figure2"))),
    ("mo21", "Figures 2 and 3", lambda: f"{len(_seeds('mo21/figure2', 'cpu'))} seeds"),
]
"""Page, start of a row, and a text that the row must have."""


def _side(name: str) -> tuple[int]:
    return (cells(name, SMALL)[0].side,)


def _seeds(name: str, size: str) -> list[int]:
    file = yaml.safe_load((EXPERIMENTS / f"{name}.yaml").read_text(encoding="utf-8"))
    return list(file["sizes"][size]["seed"])


@pytest.mark.parametrize(("page", "start", "text"), WORDS)
def test_a_row_says_what_the_settings_are(page: str, start: str, text: Callable[[], str]) -> None:
    (row,) = [one for one in rows(FOLDER / f"{page}.md") if one[0].startswith(start)]
    assert text() in row[2], (text(), row[2])


def test_table_iv_attacks_a_hundred_batches_of_each_size() -> None:
    assert {updates("agic/table4", data="cifar10", batch_size=size) for size in (1, 4)} == {100}
    assert updates("agic/table4", data="imagenet-sample", batch_size=4) == 25

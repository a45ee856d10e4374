"""The charts that inference adds to the page of a grid."""

from dataclasses import replace
from statistics import NormalDist

from leakgauge.inference.metrics import METRICS
from leakgauge.inference.question import QUESTION
from leakgauge.report.compare import Comparison, FinishedCell, groups
from leakgauge.report.compare_page import render_comparison
from leakgauge.report.section import Chart
from leakgauge.results.measurements import Estimate, Measurement
from support.made_runs import make_records, visible

DEFENSES = {"none": (0.9, 3.0), "sign": (0.85, 1.0), "prune:rate=0.9": (0.8, 2.0)}


def measured(defense: str, seed: int, rounds: int) -> list[Measurement]:
    """Static and, under a defense, adaptive adversaries, and the model's two figures."""
    task, shift = DEFENSES[defense]
    found = make_records(shift, rounds=rounds, defense=defense)
    first = [
        replace(one, round=f"first-{count}", curve=None)
        for one in found
        if one.round == "accumulated"
        for count in range(2, rounds)
    ]
    *attacked, accuracy = found
    attacked += first
    if defense != "none":
        attacked += [replace(one, knowledge="adaptive") for one in attacked]
    ranked = Estimate(task + 0.01 * seed, task - 0.05, task + 0.05, 9000)
    model = [accuracy, replace(accuracy, metric="task_auroc", estimate=ranked, chance=0.5)]
    return [replace(one, seed=seed) for one in (*attacked, *model)]


def of_grid(defenses: list[str], *, rounds: int = 4) -> Comparison:
    cells = {
        f"{defense}-{seed}": FinishedCell(
            {"data": "adult", "ask": "property", "defense": defense, "seed": seed},
            measured(defense, seed, rounds),
        )
        for defense in defenses
        for seed in (0, 1)
    }
    return Comparison("g", "", "small", len(cells), cells, [list(cells)], ())


def drawn(comparison: Comparison) -> list[Chart]:
    return list(QUESTION.charts(comparison, groups(comparison.cells, METRICS)))


def test_defenses_stand_by_advantage_and_by_the_auroc_of_the_task() -> None:
    tradeoff, *rounds = drawn(of_grid(list(DEFENSES)))
    assert tradeoff.caption.startswith("Advantage (upwards) against AUROC of the task")
    assert tradeoff.names == ["none", "sign", "prune:rate=0.9"]
    assert "none, static: advantage 0.866, AUROC of the task 0.905" in tradeoff.says
    assert len(rounds) == 5  # one undefended, and a static and an adaptive one of each defense
    assert len({one.caption for one in rounds}) == 5


def test_rounds_are_drawn_with_their_sums_over_seeds() -> None:
    (one,) = drawn(of_grid(["none"]))
    assert one.caption == "AUROC by round"
    alone, whole = (NormalDist().cdf(shift / 2**0.5) for shift in (3.0 * 0.51, 3.0))
    assert f"AUROC of single rounds: 1: {alone:.3f}; 2: " in one.says
    assert one.says.endswith(
        f"rounds so far: 1: {alone:.3f}; 2: {whole:.3f}; 3: {whole:.3f}; 4: {whole:.3f}."
    )
    assert drawn(of_grid(["none"], rounds=1)) == []


def test_the_page_has_both() -> None:
    comparison = of_grid(list(DEFENSES))
    page = render_comparison(
        comparison, METRICS, charts=lambda found, each: QUESTION.charts(found, each)
    )
    assert "<li>none</li><li>sign</li><li>prune:rate=0.9</li>" in page
    for words in ("plain sum of the rounds so far", "adaptive"):
        assert words in visible(page)

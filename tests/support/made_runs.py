"""Make synthetic runs and measurements for tests of the report, and read its pages."""

import dataclasses
import functools
import html
import re
from pathlib import Path
from statistics import NormalDist
from typing import Any

from leakgauge.defenses import parse_defense
from leakgauge.inference.question import QUESTION
from leakgauge.inference.report.verdict import verdicts
from leakgauge.privacy.certificates import guarantees
from leakgauge.report.page import Page, render_page
from leakgauge.report.section import Section
from leakgauge.results.measurements import ACCUMULATED, STACKED, Estimate, Measurement, Run
from leakgauge.runs.question import Answer

NORMAL = NormalDist()
LIMIT = 1_000_000
HOSTILE = "<script>alert(1)</script></svg>`'\"{{ 7 * 7 }} $x$"


def make_run(**changed: Any) -> Run:
    settings = {
        "data": "tables/adult.csv",
        "label": "income",
        "group": "household",
        "drop": ["fnlwgt"],
        "bins": {"income": 2},
        "drop_missing": False,
        "ask": ["property", "attribute"],
        "adversary": ["forest", "logistic"],
        "secret": "sex",
        "batch_size": 16,
        "rounds": 5,
        "trials": 2000,
        "lr": 0.05,
        "batches": "reuse",
        "prior": "uniform",
        "seed": 7,
        "shadow": 15000,
        "hidden": [64, 32],
        "device": "cpu",
        "defense": ["none"],
    }
    data = {
        "name": "adult",
        "fingerprint": "9f2c" * 16,
        "records": 45222,
        "columns": 13,
        "private": 20000,
        "public": 12000,
        "test": 9000,
        "users": 31000,
        "secret_values": {"Female": 14695, "Male": 30527},
        "blocks": {"property": 125, "attribute": 125},
        "model": {"property": "Sequential(\n  (0): Linear(101, 64)\n  (1): ReLU()\n)"},
    }
    run = Run(
        command="audit",
        settings=settings | changed.pop("settings", {}),
        data=data | changed.pop("data", {}),
        notes=("column 'fnlwgt' was dropped, as asked", "3,620 records with missing values kept"),
        versions={"python": "3.11.7", "leakgauge": "0.1.0", "torch": "2.13.0"},
    )
    return dataclasses.replace(run, **changed)


def make_records(
    shift: float = 3.9,
    half: float = 0.004,
    rounds: int = 5,
    game: str = "property",
    adversary: str = "forest",
    defense: str = "none",
    **names: str,
) -> list[Measurement]:
    """Return one cell's records for scores from two unit Gaussians at distance ``shift``."""
    base = Measurement(
        question="inference",
        game=game,
        dataset=names.get("dataset", "adult"),
        label=names.get("label", "income"),
        secret=names.get("secret", "sex"),
        defense=defense,
        knowledge=names.get("knowledge", "static"),
        adversary=adversary,
        metric="auroc",
        round=ACCUMULATED,
        seed=7,
        estimate=Estimate(0.5, 0.5, 0.5, 2000),
        chance=0.5,
        details={"adversary": "Forest(trees=200, depth=12)", "features": "largest 512 by |t|"},
    )
    made: list[Measurement] = []
    for when in [*range(1, rounds + 1), ACCUMULATED]:
        strength = shift if isinstance(when, str) else shift * (0.45 + 0.06 * (when % 7))
        made += _one_round(base, when, strength, half)
    accuracy = Estimate(0.8512, 0.8441, 0.8583, 9000)
    utility = {"adversary": "", "metric": "accuracy", "round": rounds, "chance": 0.7522}
    return [*made, dataclasses.replace(base, estimate=accuracy, **utility)]


def _one_round(base: Measurement, when: int | str, shift: float, half: float) -> list[Measurement]:
    auroc, success = NORMAL.cdf(shift / 2**0.5), NORMAL.cdf(shift / 2)
    grid = [0.0, *(10 ** (-3 + 3 * step / 400) for step in range(401))]
    curve = tuple((f, NORMAL.cdf(NORMAL.inv_cdf(f) + shift) if 0 < f < 1 else f) for f in grid)
    rows = {
        "auroc": (auroc, 0.5, half, curve),
        "tpr_at_1_fpr": (NORMAL.cdf(NORMAL.inv_cdf(0.01) + shift), 0.01, 2 * half, None),
        "success": (success, 0.5, half, None),
        "advantage": (max(0.0, 2 * success - 1), 0.0, 2 * half, None),
    }
    return [
        dataclasses.replace(
            base,
            metric=metric,
            round=when,
            estimate=Estimate(
                value,
                max(0.0, value - wide),
                min(1.0, value + wide),
                2000,
            ),
            chance=chance,
            curve=points,
        )
        for metric, (value, chance, wide, points) in rows.items()
    ]


def many() -> list[Measurement]:
    """Return measurements of six cells with every level of leakage and many rounds."""
    made = []
    for i, shift in enumerate((3.9, 1.1, 0.35, 0.02, -0.4, 2.2)):
        game, defense = ("property", "attribute")[i % 2], ("none", "sign", "noise")[i // 2]
        adversary = ("forest", "logistic")[i // 3]
        made += make_records(shift, 0.02, 20, game=game, adversary=adversary, defense=defense)
    return made


DEFENSES = {  # by name: accuracy, shift of a static and of an adaptive adversary
    "none": (0.85, 3.9, None),
    "prune:rate=0.99": (0.83, 0.1, 2.9),
    "sign": (0.845, -0.6, 3.6),
    "dpsgd:clip=2,noise=0.1": (0.79, 0.0, 0.5),
}


def defended(
    defenses: dict[str, tuple[float, float, float | None]] = DEFENSES, half: float = 0.02
) -> list[Measurement]:
    """Return measurements of two adversaries, static and adaptive, for each defense."""
    made: list[Measurement] = []
    for name, (accuracy, *shifts) in defenses.items():
        for knowledge, shift in zip(("static", "adaptive"), shifts, strict=True):
            for share, adversary in ((1.0, "forest"), (0.9, "logistic")):
                if shift is not None:
                    made += make_records(
                        *(shift * share, half, 3),
                        adversary=adversary,
                        defense=name,
                        knowledge=knowledge,
                    )[:-1]
        estimate = Estimate(accuracy, accuracy - 0.007, accuracy + 0.007, 9000)
        made.append(dataclasses.replace(make_records(defense=name)[-1], estimate=estimate))
    return made


def promised_run(*names: str, games: tuple[str, ...] = ("property",), **changed: Any) -> Run:
    """Return a run with the promises of its defenses, as an audit writes them."""
    asked: dict[str, Any] = {"batch_size": 16, "records": 20005, "rounds": 5, "parameters": 6500}
    asked |= {"prior": (0.5, 0.5)} | changed
    known = {
        name: guarantees(parse_defense(name, batch_size=16).release, **asked)
        for name in ("none", *names)
    }
    return make_run(guarantees=dict.fromkeys(games, known))


def stacked(records: list[Measurement]) -> list[Measurement]:
    """Return the records with additional figures for a second accumulation."""
    again = [
        dataclasses.replace(
            r, round=STACKED, estimate=dataclasses.replace(r.estimate, value=r.estimate.low)
        )
        for r in records
        if r.round == ACCUMULATED
    ]
    return [*records, *again]


def answered_section(run: Run, records: list[Measurement]) -> Section:
    return QUESTION.section(Answer(run, records), Path())


def render(run: Run, records: list[Measurement]) -> str:
    """Return the report of an audit of only this question."""
    page = Page(
        command="audit",
        sections=[answered_section(run, records)],
        measurements=records,
        data={"name": "data", **run.data},
        versions=run.versions,
    )
    return render_page(page)


@functools.cache
def page_of_many() -> str:
    """Return the report of six cells; drawing it takes seconds."""
    return render(make_run(), many())


def section(page: str, name: str = "defenses") -> str:
    return page.split(f'<section id="inference-{name}"')[1].split("</section>")[0]


def said(records: list[Measurement], run: Run | None = None) -> tuple[str, str]:
    one = verdicts(run or make_run(), records)[0]
    return one.level, one.text


def visible(page: str) -> str:
    """Return the visible text of a page."""
    body = re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", page, flags=re.S)
    return html.unescape(re.sub(r"<[^>]+>", " ", body)).replace("\u00a0", " ")

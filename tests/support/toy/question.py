"""A toy question: how many records does a table have?"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leakgauge.core.checks import require
from leakgauge.core.strict import Whole
from leakgauge.runs.question import Answer, Prepared
from leakgauge.runs.setting import setting
from leakgauge.runs.spec import Spec, check_bounds, plain


@dataclass(frozen=True, kw_only=True)
class ToySpec(Spec):
    """Settings of the toy question."""

    ask: tuple[str, ...] = setting(("toy",), "what to ask", cells=True)
    factor: Whole = setting(1, "multiplies the figure", least=1)
    words: tuple[str, ...] = setting((), "some words", cells=True)
    defense: tuple[str, ...] = setting(("none",), "what clients do", cells=True, adds=True)


@dataclass(frozen=True)
class ToyStage:
    """Stage that counts to the number of records in three steps, each with a line in a log."""

    spec: ToySpec
    records: int
    name: str = "toy"
    steps: int = 3

    @property
    def memory(self) -> int:
        return 0

    @property
    def first(self) -> Mapping[str, Any]:
        import torch

        return {"count": torch.zeros(1)}

    def states(self, kept: Any) -> Any:
        state = kept[-1] if kept else self.first
        if not kept:
            yield state
        for _ in range(max(len(kept), 1), self.steps + 1):
            state = {"count": state["count"] + self.records / self.steps}
            yield state

    def step(self, number: int, state: Any) -> Any:
        import numpy as np

        if log := os.environ.get("TOY_LOG"):
            with Path(log).open("a") as file:
                file.write(f"{number}\n")
            time.sleep(float(os.environ.get("TOY_SECONDS", "0")))
        return {"count": np.array([float(state["count"][0])])}, {"number": number}

    def close(self, states: Any, progress: Any) -> Any:
        return None

    def judge(self, steps: Any, closing: Any, final: Any) -> Any:
        from leakgauge.results.measurements import ACCUMULATED, Estimate, Measurement

        value = self.spec.factor * round(float(final["count"][0]), 6)
        return [
            Measurement(
                question="toy",
                game="toy",
                dataset="toy",
                label=str(self.spec.label),
                secret="records",
                defense=self.spec.defense[-1],
                knowledge="static",
                adversary="counter",
                metric="count",
                round=ACCUMULATED,
                seed=self.spec.seed,
                estimate=Estimate(value, value - 1, value + 1, len(steps)),
                chance=0.0,
            )
        ]


class Toy:
    """The toy question; this folder holds all of it."""

    name = "toy"
    title = "How many records are there?"
    asks: Mapping[str, str] = {"toy": "the number of records"}
    Spec = ToySpec

    @property
    def metrics(self) -> Mapping[str, Any]:
        from leakgauge.results.metrics import Metric

        return {"count": Metric(title="Count", high=float("inf"), headline=True)}

    def check(self, spec: Any) -> None:
        check_bounds(spec)

    def prepare(self, spec: Any, source: Any) -> Prepared:
        require(source.task is None, "the toy question counts rows; bring a table")
        label = spec.label or str(source.frame.columns[0])
        return Prepared(replace(spec, label=label), source)

    def run(
        self, prepared: Any, folder: Any, progress: Any, *, workers: int | None = None
    ) -> Answer:
        from leakgauge.results.measurements import Run
        from leakgauge.runs.parts import run_stages

        spec, source = prepared.spec, prepared.source
        run = Run("", plain(spec), {"name": source.name, "records": len(source.frame)})
        folder.guard(run)
        progress.note("the toy counts")
        stages = [ToyStage(spec, len(source.frame))]
        found, missing = run_stages(folder, stages, workers=workers, progress=progress)
        (folder.files / "kept.txt").write_text("kept")
        return Answer(run, found, tuple(missing))

    def section(self, answer: Answer, folder: Path) -> Any:
        from markupsafe import Markup

        from leakgauge.report.section import Line, Row, Section

        assert (folder / "kept.txt").read_text() == "kept"
        one = answer.measurements[0]
        text = f"There are {one.estimate.value:g} records."
        row = Row("toy", "Counted", "clear", text, "Count", one.estimate, one.chance, 0.5)
        html = Markup('<p id="toy-text">{}</p>').format(text)
        line = Line(text, "clear", heading="Counted")
        return Section("toy", self.title, html, [row], [line], answer.missing)

    def to_json(self, answer: Answer, folder: Path) -> dict[str, Any]:
        return {"count": answer.measurements[0].estimate.value}

    def badge(self, group: Any) -> Any:
        from leakgauge.report.section import Badge

        return Badge("clear", "Counted", 0.5) if "count" in group.means else None

    def charts(self, comparison: Any, groups: Any) -> list[Any]:
        return []


QUESTION = Toy()

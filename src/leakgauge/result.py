"""The result of an audit in Python: verdicts, figures, a page, the decision of rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from leakgauge.report.facts import plain_interval
from leakgauge.report.section import Row, Section
from leakgauge.results.measurements import Measurement
from leakgauge.runs.audit import AuditRun

if TYPE_CHECKING:
    from torch import Tensor

    from leakgauge.evidence.controls import Control
    from leakgauge.evidence.gate import Gate
    from leakgauge.evidence.rule import FailRule


NO_FIGURE = "no figure"


@dataclass(frozen=True, eq=False)
class Result:
    """The answers of an audit.

    Attributes:
        run: the audit with its folder.
        sections: sections of the report.
        controls: placebo and planted leak of each question; empty unless requested.
    """

    run: AuditRun
    sections: Sequence[Section]
    controls: "Sequence[Control]" = ()

    @property
    def verdicts(self) -> list[Row]:
        """One row for each question: verdict, level, headline figure and text."""
        return [row for section in self.sections for row in section.rows]

    @property
    def measurements(self) -> list[Measurement]:
        """All figures, each with its interval."""
        return self.run.measurements

    @property
    def missing(self) -> list[str]:
        """Requested but not completed, with the reasons."""
        return self.run.missing

    @property
    def warnings(self) -> list[str]:
        """Facts that change the meaning of figures, each once and with advice.

        The command line prints the same lines.
        """
        from leakgauge.report.warned import warnings_of

        return warnings_of(self.sections)

    @property
    def not_asked(self) -> Sequence[str]:
        """Questions that the data do not allow, with the reason and what would allow them."""
        return self.run.description.notes

    @property
    def pictures(self) -> "dict[str, Tensor]":
        """The true and rebuilt images by name, uint8 ``[n, c, h, w]``.

        ``"truth"`` comes first if it is known, then each attack with its defense. Empty if no image
        was rebuilt, or ``redact`` keeps none.
        """
        return {name: one for section in self.sections for name, one in section.pictures.items()}

    def gate(self, *rules: str, against: "Result | str | Path | None" = None) -> "Gate":
        """Return the decision of rules such as ``"advantage.high > 0.05"``, as for ``--fail-if``.

        A broken promise of differential privacy fails without any rule. No file is written.

        Args:
            rules: when to fail; those with a side, such as ``"advantage.difference.low > 0.02"``,
                compare with the reference.
            against: the reference: another result, or the folder of a finished audit.

        Raises:
            InputError: a rule has another form, concerns a question that was not asked, or two
                runs without a reference; or the reference is not a finished audit.
        """
        from leakgauge.evidence.rule import parse_rule

        return self._decided([parse_rule(text) for text in rules], against)

    def require(self, *rules: str, against: "Result | str | Path | None" = None) -> "Result":
        """Raise unless rules such as ``"advantage.high <= 0.05"`` hold; return the result.

        A rule that ``gate`` would not pass does not hold: also where the data are too few to see
        such a leak, or the figure was not measured.

        Args:
            rules: what must hold; ``"advantage.difference.low <= 0.02"`` compares with the
                reference.
            against: the reference: another result, or the folder of a finished audit.

        Raises:
            AssertionError: a rule does not hold, or a promise is broken; the message names figure,
                interval and limit.
            InputError: as for ``gate``.
        """
        from leakgauge.evidence.cases import why_not
        from leakgauge.evidence.rule import parse_rule

        __tracebackhide__ = True  # of pytest, which then shows the caller's line
        gate = self._decided([parse_rule(text, required=True) for text in rules], against)
        if not gate.passed:
            raise AssertionError(why_not(gate))
        return self

    def require_no_worse_than(
        self, reference: "Result | str | Path", *metrics: str, by: float = 0.0
    ) -> "Result":
        """Raise if a metric is shown to be worse than in a reference; return the result.

        An unchanged figure raises in at most 2.5 % of audits. A change that the interval cannot
        show does not raise; ``require("METRIC.difference.high <= ...", against=...)`` asks that it
        is excluded.

        Args:
            reference: another result, or the folder of a finished audit.
            metrics: such as ``"advantage"`` or ``"membership.auroc"``; by default the headline of
                each question.
            by: the change that is tolerated, in units of the metric; 0 or more.

        Raises:
            AssertionError: a metric is worse; the message names figure, interval and limit.
            InputError: a metric is unknown, or the reference is not a finished audit.
        """
        from leakgauge.catalog import questions
        from leakgauge.evidence.between import no_worse
        from leakgauge.evidence.parts import parts_of_audit

        __tracebackhide__ = True
        run = parts_of_audit(self.run, None, questions())
        return self.require(*no_worse(run, metrics, by), against=reference)

    def _decided(
        self, rules: "Sequence[FailRule]", against: "Result | str | Path | None"
    ) -> "Gate":
        from leakgauge.catalog import questions
        from leakgauge.evidence.between import check_sides, evaluate_between, two_runs
        from leakgauge.evidence.evaluation import evaluate_rules
        from leakgauge.evidence.parts import parts_of_audit
        from leakgauge.evidence.rule import check_rules

        known = questions()
        run = parts_of_audit(self.run, self.sections, known)
        between = [rule for rule in rules if rule.side and against is not None]
        own = [rule for rule in rules if rule not in between]
        check_rules(own, run.questions, known)
        gate = evaluate_rules(own, run)
        if against is None:
            return gate
        runs = two_runs(run_of(against), self.run, run, known)
        check_sides(between, runs, known)
        return gate.joined(evaluate_between(between, runs))

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per figure: its names, value, interval and n."""
        rows = [
            {
                "question": one.question,
                "ask": one.game,
                "defense": one.defense,
                "knowledge": one.knowledge,
                "adversary": one.adversary,
                "metric": one.metric,
                "round": one.round,
                **plain_interval(one.estimate),
                "n": one.estimate.n,
                "chance": one.chance,
                "seed": one.seed,
            }
            for one in self.measurements
        ]
        return pd.DataFrame(rows)

    @property
    def exposure(self) -> pd.DataFrame:
        """One row per attacked record and defense, the most exposed record first.

        The columns are those of ``exposure.csv``: row in the data, corrected p value, and for each
        test whether it names the record. Empty if no question tested single records.
        """
        from leakgauge.runs.exposure import exposure_table, exposures_of

        return exposure_table(exposures_of(self.run))

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the report as one HTML page; with ``path``, write it there too."""
        from leakgauge.core.files import write_text
        from leakgauge.runs.page import render_audit

        html = render_audit(self.run, self.sections)
        if path is not None:
            write_text(Path(path), html)
        return html

    def log_to(
        self,
        tracker: str,
        *,
        run: str | None = None,
        step: int | None = None,
        private_records: bool = False,
    ) -> str:
        """Log figures, verdicts, settings and the report to a tracker; return what went where.

        Figures have flat names: ``property.auroc``, ``property.auroc.low``, ``.high`` and ``.n``,
        and ``prune_rate_0.9/adaptive/property.auroc`` under a defense.

        Args:
            tracker: ``"mlflow"``, ``"wandb"`` or ``"tensorboard"``.
            run: name of a new run (of TensorBoard: its folder). None takes the active run; without
                one, a new run that the tracker names.
            step: step of a training that the figures belong to.
            private_records: whether to send a report that shows private records.

        Raises:
            InputError: the tracker is unknown or not installed, or refuses what it gets.
        """
        from leakgauge.catalog import questions
        from leakgauge.evidence.logged import logged
        from leakgauge.integrations.trackers import check_tracker, log_to

        check_tracker(tracker)
        known = questions()
        given = logged(self.run, self.sections, known, private_records=private_records)
        return log_to(tracker, given, run=run, step=step)

    def model_index(self, model_name: str, *, source_url: str = "") -> str:
        """Return the figures as metadata of a Hugging Face model card: YAML of a ``model-index``.

        Args:
            model_name: name of the model.
            source_url: address of the report or audit card; empty for none.

        Raises:
            InputError: the name is empty.
        """
        from leakgauge.catalog import questions
        from leakgauge.evidence.model_index import model_index

        return model_index(self.run, questions(), model_name, source_url=source_url)

    def _repr_html_(self) -> str:
        """Return the summary that a notebook shows."""
        from html import escape

        from leakgauge.report.wording import marked

        rows = "".join(
            f"<tr><th>{escape(row.ask)}</th><td>{escape(row.verdict)}</td>"
            f"<td>{row.figure or NO_FIGURE}</td><td>{marked(row.text)}</td></tr>"
            for row in self.verdicts
        )
        head = "<tr><th>question</th><th>verdict</th><th>figure</th><th>in words</th></tr>"
        return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"

    def __str__(self) -> str:
        return "\n".join(
            f"{row.ask}: {row.verdict} ({row.figure or NO_FIGURE})" for row in self.verdicts
        )


def run_of(audit: Result | str | Path) -> AuditRun:
    """Return the run of a result, or of the folder of a finished audit.

    Raises:
        InputError: the folder does not hold a finished audit.
    """
    from leakgauge.runs.differences import read_finished

    return audit.run if isinstance(audit, Result) else read_finished(Path(audit))

"""The options of a build: rules that fail it, and the files that its server reads."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from leakgauge.cli.stopping import REFUSED
from leakgauge.core.checks import require
from leakgauge.runs.setting import RUN

if TYPE_CHECKING:
    from leakgauge.evidence.between import TwoRuns
    from leakgauge.evidence.gate import FigureOutcome, Gate
    from leakgauge.evidence.parts import RunParts
    from leakgauge.evidence.rule import FailRule
    from leakgauge.runs.question import Question

FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        help="a rule such as 'advantage.high > 0.05' that ends the command with exit code 3, "
        "also where the data are too few to see such a leak: QUESTION.METRIC.high, .low or "
        ".value, then >, >=, < or <=, then a number; METRIC.difference of two runs (repeatable)",
        metavar="<rule>",
        rich_help_panel=RUN,
    ),
]
Junit = Annotated[
    Path | None,
    typer.Option(help="write JUnit XML: a test case for each question and defense, or cell",
                 metavar="<path>", rich_help_panel=RUN),
]  # fmt: skip
Sarif = Annotated[
    Path | None,
    typer.Option(help="write SARIF 2.1.0: a result for each leak and each rule that fails",
                 metavar="<path>", rich_help_panel=RUN),
]  # fmt: skip
Markdown = Annotated[
    Path | None,
    typer.Option(help="write Markdown for a comment on a change: figures, rules, differences",
                 metavar="<path>", rich_help_panel=RUN),
]  # fmt: skip

OPTIONS: Mapping[str, Any] = {
    "fail_if": FailIf, "junit": Junit, "sarif": Sarif, "markdown": Markdown
}  # fmt: skip
WIDEST = 10_000
OUTCOMES = {"pass": "green", "not measured": "magenta"}
"""Styles of outcomes; others are failures."""


@dataclass(frozen=True)
class GateOptions:
    """Rules and files of a build.

    Attributes:
        rules: the rules of ``--fail-if``.
        junit: file for JUnit XML; None for none.
        sarif: file for SARIF; None for none.
        markdown: file for Markdown; None for none.
    """

    rules: Sequence["FailRule"] = ()
    junit: Path | None = None
    sarif: Path | None = None
    markdown: Path | None = None

    @property
    def own(self) -> "list[FailRule]":
        """The rules on the run alone."""
        return [rule for rule in self.rules if not rule.side]

    @property
    def between(self) -> "list[FailRule]":
        """The rules on two runs."""
        return [rule for rule in self.rules if rule.side]

    @property
    def files(self) -> dict[str, Path]:
        """The files to write, by option."""
        named = {"--junit": self.junit, "--sarif": self.sarif, "--markdown": self.markdown}
        return {name: path for name, path in named.items() if path is not None}

    def check(
        self,
        asked: "Sequence[Question]",
        known: "Mapping[str, Question]",
        reference: "RunParts | None" = None,
    ) -> None:
        """Refuse rules about what the run will not measure, or the reference did not.

        Raises:
            InputError: a rule names what is unknown or not asked, or two runs without a reference.
        """
        from leakgauge.evidence.between import check_reference
        from leakgauge.evidence.rule import check_rule, check_rules

        check_rules(self.rules if reference is None else self.own, asked, known)
        if reference is not None:
            for rule in self.between:
                check_rule(rule, asked, known)
            check_reference(self.between, reference, known)

    def evaluate(
        self, run: "RunParts", *, keep: bool = False, runs: "TwoRuns | None" = None
    ) -> "Gate":
        """Evaluate the rules on a run, and write the decision and the files that were asked for.

        Args:
            run: its parts.
            keep: whether an older decision stays if no rule is given.
            runs: the run and a reference; None without one.
        """
        from leakgauge.evidence.evaluation import evaluate_rules
        from leakgauge.evidence.gate import COMPARED_FILE, Gate, write_gate

        gate = evaluate_rules(self.own, run)
        if self.rules or not keep:
            write_gate(run.folder, gate)
        if runs is not None:
            gate = gate.joined(self.evaluate_between(runs))
        elif not keep:
            write_gate(run.folder, Gate(), COMPARED_FILE)
        self.write(run, gate, runs)
        return gate

    def evaluate_between(self, runs: "TwoRuns") -> "Gate":
        """Evaluate the rules on two runs, and write the decision to the new run's folder."""
        from leakgauge.evidence.between import evaluate_between
        from leakgauge.evidence.gate import COMPARED_FILE, write_gate

        gate = evaluate_between(self.between, runs)
        write_gate(runs.after.folder, gate, COMPARED_FILE)
        return gate

    def write(self, run: "RunParts", gate: "Gate", runs: "TwoRuns | None" = None) -> None:
        """Write the files that were asked for."""
        from leakgauge.core.files import write_text
        from leakgauge.evidence.comment import as_markdown
        from leakgauge.evidence.junit import as_junit
        from leakgauge.evidence.sarif import as_sarif

        if self.junit is not None:
            write_text(self.junit, as_junit(run, gate))
        if self.sarif is not None:
            write_text(self.sarif, as_sarif(run, gate))
        if self.markdown is not None:
            found = None if runs is None else runs.differences
            write_text(self.markdown, as_markdown(run, gate, found))


def gated(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of a build, which its parameter ``gate_options`` gets."""
    own = inspect.signature(command, eval_str=True).parameters
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=one)
        for name, one in OPTIONS.items()
    ]
    kept = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, one in own.items() if name != "gate_options"]  # fmt: skip
    parameters = [*kept, *added]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        given = {name: values.pop(name) for name in OPTIONS}
        command(**values, gate_options=_read(**given))

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def has_gate(command: Callable[..., None]) -> bool:
    """Return whether a command has the options of a build."""
    return set(OPTIONS) <= set(inspect.signature(command).parameters)


def exit_with(gate: "Gate", *, refused: bool) -> None:
    """End the command as the gate decides; a failure counts more than a refusal.

    Raises:
        Exit: the gate did not pass, or something was refused.
    """
    code = gate.exit_code or (REFUSED if refused else 0)
    if code:
        raise typer.Exit(code)


def gate_as_json(gate: "Gate") -> dict[str, Any]:
    """Return what ``--json`` says of the gate; nothing without rules and broken promises."""
    return {"gate": gate.as_json()} if gate.rules or gate.broken else {}


def wide_console() -> Console:
    """Return a console for answers; a pipe has no width to wrap at."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDEST)


def print_gate(gate: "Gate", console: Console) -> None:
    """Print one line a figure of each rule, and the decision."""
    if gate.rules:
        console.print()
        console.print(_table(gate))
    for broken in gate.broken:
        console.print(Text(f"{broken.ask}: {broken.why}", style="bold red"), soft_wrap=True)
    if gate.rules or gate.broken:
        style = {"pass": "green", "fail": "bold red", "undecided": "magenta"}[gate.decision]
        text = f"gate: {gate.decision} (exit code {gate.exit_code})"
        console.print(Text(text, style=style), soft_wrap=True)


def _read(
    fail_if: Sequence[str] | None, junit: Path | None, sarif: Path | None, markdown: Path | None
) -> GateOptions:
    from leakgauge.evidence.rule import parse_rule

    rules = [parse_rule(text) for text in fail_if or ()]
    texts = [rule.text for rule in rules]
    require(len(set(texts)) == len(texts), "--fail-if has one rule twice; leave one out")
    options = GateOptions(rules, junit, sarif, markdown)
    taken: dict[Path, str] = {}
    for name, path in options.files.items():
        require(not path.is_dir(), f"{name} is {str(path)!r}, a folder; name a file to write")
        other = taken.setdefault(path.resolve(), name)
        require(other == name, f"{other} and {name} are both {str(path)!r}; name two files")
    return options


def _table(gate: "Gate") -> Table:
    from leakgauge.evidence.gate import figure_in_words, signed

    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("rule", "figure", "value", "95 % interval", "smallest visible", "outcome", "why"):
        table.add_column(name, no_wrap=name not in ("figure", "why"))
    for rule in gate.rules:
        for one in rule.figures:
            least = one.smallest_detectable
            words = figure_in_words(one)
            table.add_row(
                Text(rule.rule),
                Text(_name(one)),
                Text(words["value"]),
                Text(words["interval"]),
                Text("" if least is None else signed(least)),
                Text(one.outcome, style=OUTCOMES.get(one.outcome, "bold red")),
                Text(one.why),
            )
    return table


def _name(one: "FigureOutcome") -> str:
    """Return a figure in a few words."""
    from leakgauge.evidence.cases import name_of

    name = name_of(one.ask or one.question, one.secret, one.defense, one.knowledge, one.cell)
    name = f"{one.side}, {name}" if one.side else name
    return f"{name}, round {one.round}" if isinstance(one.round, int) else name

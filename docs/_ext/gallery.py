"""Make real reports by small runs on the table that comes with the package."""

import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FOLDER = "gallery"


@dataclass(frozen=True)
class Report:
    """A report of the gallery.

    Attributes:
        name: name of the HTML file, without suffix.
        title: heading of the entry.
        about: description in one sentence.
        command: command that makes the report, without ``--out``.
    """

    name: str
    title: str
    about: str
    command: str


QUICK = "--rounds 2 --trials 500 --shadow 400 --hidden 16"
REPORTS = (
    Report(
        "questions",
        "Several questions in one report",
        "A summary above, then one section for each question.",
        f"leakgauge audit randhie --ask property --ask attribute --ask membership {QUICK} "
        "--set membership.size=400",
    ),
    Report(
        "defenses",
        "Three defenses, static and adaptive",
        "Each defense is tested against an adversary that does not know it, and one that does.",
        f"leakgauge audit randhie --defense prune:rate=0.99 --defense sign "
        f"--defense dpsgd:clip=2,noise=0.1 --adversary energies {QUICK}",
    ),
    Report(
        "grid",
        "A grid of experiments",
        "Two defenses and two seeds, compared on one page.",
        "leakgauge run experiments/demo.yaml --set defense=none,prune --set seed=0,1 "
        "--set rounds=2 --set trials=400 --set shadow=300 --set hidden=8 --set adversary=energies",
    ),
    Report(
        "reconstruction",
        "Rebuilt records",
        "Records of a table, rebuilt from gradients of single records.",
        "leakgauge invert randhie",
    ),
    Report(
        "guarantee",
        "A guarantee, audited",
        "The epsilon that an auditor can show, next to the exact one.",
        "leakgauge guarantee randhie --attribute female --clip 2 --noise 0.1 --trials 1000",
    ),
)
"""The reports, in the order of the page."""


def page(folder: Path, say: Callable[[str], None]) -> str:
    """Make every report that ``folder`` does not hold yet, and return the list of links."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in REPORTS:
        target = folder / f"{one.name}.html"
        if not _is_made(target, one):
            say(f"gallery: {one.command}")
            _make(one, target)
    return "\n".join(_entry(one) for one in REPORTS)


def _is_made(target: Path, report: Report) -> bool:
    """Return whether the same command has already made the page."""
    note = target.with_suffix(".txt")
    return target.is_file() and note.is_file() and note.read_text("utf-8") == report.command


def _make(report: Report, target: Path) -> None:
    words = shlex.split(report.command)[1:]
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"
        ended = subprocess.run(
            [sys.executable, "-m", "leakgauge", *words, "--out", str(out)],
            cwd=Path(__file__).parents[2], capture_output=True, text=True,
        )  # fmt: skip
        if ended.returncode:
            raise RuntimeError(f"{report.command} ended with {ended.returncode}: {ended.stderr}")
        shutil.copy(out / "report.html", target)
    target.with_suffix(".txt").write_text(report.command, encoding="utf-8")


def _entry(report: Report) -> str:
    link = f'<p><a href="{FOLDER}/{report.name}.html">Open the report</a></p>'
    shown = " \\\n    ".join(textwrap.wrap(report.command, 72, break_on_hyphens=False))
    return f"## {report.title}\n\n{report.about}\n\n{link}\n\n```console\n$ {shown}\n```\n"

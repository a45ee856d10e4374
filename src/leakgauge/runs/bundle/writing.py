"""Writes many runs as one static folder: the page, and each run's own report."""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from leakgauge.core.checks import InputError, require
from leakgauge.core.files import write_text
from leakgauge.report.bundle.page import MARK, Bundle, render_bundle
from leakgauge.report.bundle.pair import Compared
from leakgauge.report.differences.audited import Audited
from leakgauge.report.differences.compared import compare_audits
from leakgauge.runs.bundle.finding import find_runs, labels
from leakgauge.runs.bundle.reading import ReadRun, read_run
from leakgauge.runs.differences import audited_of, metrics_of
from leakgauge.runs.question import Progress, Question, Silent
from leakgauge.runs.store import OWNER_ONLY

INDEX, REPORTS = "index.html", "reports"
MOST_PAIRS, MOST_FIGURES = 1500, 1_000_000
"""Largest number of comparisons on a page, and of figures that they read: about 20 seconds."""


@dataclass(frozen=True)
class WrittenBundle:
    """A bundle on the disk.

    Attributes:
        index: the page.
        runs: number of runs in it.
        private: number of reports that show private records.
        unread: reasons by label, for folders that are not in it.
    """

    index: Path
    runs: int
    private: int
    unread: Mapping[str, str]


def write_bundle(
    places: Sequence[Path],
    out: Path,
    questions: Mapping[str, Question],
    *,
    progress: Progress | None = None,
) -> WrittenBundle:
    """Write the page of all runs at some places, with their reports.

    Args:
        places: folders of runs, or folders that hold them.
        out: a new or empty folder, or one of an earlier bundle, which is replaced.
        questions: all that are installed, by name.
        progress: receives the parts that are done.

    Raises:
        InputError: a place holds no run, no run can be read, or ``out`` holds something else.
    """
    _require_free(out)
    say = progress or Silent()
    found = find_runs(places)
    names = labels([*found.folders, *found.unread])
    unread = {names[folder]: why for folder, why in found.unread.items()}
    read: list[ReadRun] = []
    for number, folder in enumerate(found.folders, start=1):
        try:
            read.append(read_run(folder, names[folder], questions))
        except InputError as error:
            unread[names[folder]] = str(error).replace(str(folder), names[folder])
        say.step("reading runs", number, len(found.folders))
    require(bool(read), f"no run can be read ({'; '.join(f'{n}: {w}' for n, w in unread.items())})")
    read = _addressed(sorted(read, key=lambda one: (one.entry.when, one.entry.name), reverse=True))
    entries = [one.entry for one in read]
    page = render_bundle(Bundle(entries, _compared(read, questions, say), unread))
    _write(out, page, read)
    private = sum(one.private for one in entries)
    return WrittenBundle(out / INDEX, len(read), private, unread)


def _require_free(out: Path) -> None:
    require(
        not out.exists() or out.is_dir(), f"--out is {str(out)!r}, a file; expected a new folder"
    )
    present = sorted(one.name for one in out.iterdir()) if out.is_dir() else []
    index = out / INDEX
    ours = index.is_file() and MARK in index.read_text("utf-8", errors="replace")
    require(
        not present or (ours and set(present) <= {INDEX, REPORTS}),
        f"{str(out)!r} holds other files ({', '.join(present[:3])}); choose another --out",
    )


def _addressed(read: Sequence[ReadRun]) -> list[ReadRun]:
    """Return the runs with the address of each report."""
    addressed, known = list[ReadRun](), set[str]()
    for one in read:
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", one.entry.name).strip("-.")[:80] or "run"
        while name.lower() in known:
            name += "-"
        known.add(name.lower())
        href = f"{REPORTS}/{name}.html" if one.report else ""
        addressed.append(replace(one, entry=replace(one.entry, href=href)))
    return addressed


def _write(out: Path, page: str, read: Sequence[ReadRun]) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True, mode=OWNER_ONLY)
        write_text(out / INDEX, page)  # first: by it, a repeated command knows its own folder
        shutil.rmtree(out / REPORTS, ignore_errors=True)
        for one in read:
            if one.report:
                write_text(out / one.entry.href, one.report)
    except OSError as error:
        raise InputError(
            f"cannot write to {str(out)!r} ({error.strerror}); choose another --out"
        ) from error


def _compared(
    read: Sequence[ReadRun], questions: Mapping[str, Question], say: Progress
) -> Iterator[Compared]:
    """Yield the comparisons of runs that share data and a figure, those near in time first."""
    audits = {n: audited_of(one.audit) for n, one in enumerate(read) if one.audit is not None}
    metrics = metrics_of(questions)
    pairs = _affordable(_near(audits), audits)
    for number, (before, after) in enumerate(pairs, start=1):
        try:
            found = compare_audits(audits[before], audits[after], metrics)
            yield Compared(before, after, found)
        except InputError as error:
            yield Compared(before, after, str(error))
        say.step("comparing runs", number, len(pairs))


def _affordable(
    pairs: Sequence[tuple[int, int]], audits: Mapping[int, Audited]
) -> list[tuple[int, int]]:
    """Return the first pairs, as many as a page may hold."""
    sizes = {n: sum(map(len, one.answers.values())) for n, one in audits.items()}
    read = accumulate(sizes[before] + sizes[after] for before, after in pairs)
    kept = [pair for pair, total in zip(pairs, read, strict=True) if total <= MOST_FIGURES]
    return kept[:MOST_PAIRS]


def _near(audits: Mapping[int, Audited]) -> list[tuple[int, int]]:
    """Return pairs (before, after) of runs with the same data and a topic in common.

    The list of runs begins with the latest, so the earlier of two has the larger number. Pairs
    with fewer such runs between them come first.
    """
    ranked: list[tuple[int, int, int]] = []
    for after, one in audits.items():
        earlier = [
            before
            for before, other in audits.items()
            if before > after
            and other.data.get("name") == one.data.get("name")
            and other.topics.keys() & one.topics.keys()
        ]
        ranked += [(rank, after, before) for rank, before in enumerate(sorted(earlier))]
    return [(before, after) for _, after, before in sorted(ranked)]

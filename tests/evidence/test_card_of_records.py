"""What a card says of single records is that of the cells, and of ``exposure.csv``."""

from pathlib import Path

import pytest

from leakgauge.catalog import questions
from leakgauge.core.checks import InputError
from leakgauge.evidence.card import make_card
from leakgauge.evidence.card_file import card_page
from leakgauge.evidence.context import Context
from leakgauge.runs.exposure import EXPOSURE_FILE
from support.command import run
from support.tables import frame

pytestmark = pytest.mark.usefixtures("blank_charts")


@pytest.fixture(scope="module")
def audited(tmp_path_factory) -> Path:
    """A reconstruction of four records: exact, so that each is named."""
    folder = tmp_path_factory.mktemp("records")
    table, out = folder / "people.csv", folder / "run"
    frame(400).drop(columns=["sex", "person"]).to_csv(table, index=False)
    words = ("--label", "income", "--ask", "reconstruction", "--set", "reconstruction.images=4")
    ended = run("audit", table, *words, "--out", out)
    assert ended.returncode == 0, ended.stderr
    said = "4 of the 4 attacked records are named above chance; if nothing leaks, at most 5 %"
    assert said in ended.stdout
    return out


def test_a_card_names_the_records_of_the_file(audited: Path) -> None:
    card = make_card(audited, questions(), Context())
    (found,) = card.exposure
    lines = (audited / EXPOSURE_FILE).read_text(encoding="utf-8").splitlines()[1:]
    assert [one.row for one in found.most] == [line.split(",")[1] for line in lines]
    assert {one.named_by[0] for one in found.most} == {"reconstruction"}
    assert EXPOSURE_FILE in card.files
    assert f"| {found.most[0].row} |" in card_page(card)


def test_a_redacted_card_has_no_row_numbers(audited: Path) -> None:
    (found,) = make_card(audited, questions(), Context(), redact=True).exposure
    assert {one.row for one in found.most} == {"withheld"}


def test_a_changed_file_is_refused(audited: Path) -> None:
    path = audited / EXPOSURE_FILE
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("True", "False"), encoding="utf-8")
    with pytest.raises(InputError, match="does not hold the records of these cells"):
        make_card(audited, questions(), Context())
    path.write_text(text, encoding="utf-8")

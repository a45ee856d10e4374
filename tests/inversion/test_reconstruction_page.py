"""The page of an attempt to rebuild records: what it says, shows, hides and refuses."""

import base64
import io
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import Browser
from safetensors.torch import save_file
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.inversion.metrics.table import CLEAR_DB, CLOSE_DB
from leakgauge.inversion.question import QUESTION
from leakgauge.inversion.report.curves import draw_curves
from leakgauge.inversion.report.levels import joint_sentence, sentence
from leakgauge.inversion.report.records import RecordRows
from leakgauge.inversion.report.section import section_of
from leakgauge.report.compare import Group
from leakgauge.report.grouping import group_tests
from leakgauge.report.page import Page, render_page
from leakgauge.results.measurements import ACCUMULATED, Estimate, Measurement, Run
from leakgauge.runs.question import Answer
from support.pages import HOSTILE, SCREENS, drawn, opened

LONG = "a_name_without_any_place_to_break_" * 4 + HOSTILE
RUN = Run(
    "",
    {"data": "set.npz", "images": 3, "method": ["agic"], "redact": False, "seed": 0},
    {"name": "set", "fingerprint": "9f2c" * 16, "records": 3},
    ("the arrays that end in '_test' were read",),
    {"python": "3.11.7", "leakgauge": "0.1.0"},
)


def render_inversion(
    run: Run,
    measured: Sequence[Measurement],
    images: Mapping[str, Tensor],
    rows: Mapping[str, RecordRows],
) -> str:
    """The page of a report on this question alone."""
    section = section_of(Answer(run, measured), images, rows)
    return render_page(Page("invert", [section], measured, run.data, run.versions))


def sentences(measured: Sequence[Measurement]) -> list[str]:
    return [sentence(test) for test in group_tests(measured)]


def record(metric: str, value: float, **changed: Any) -> Measurement:
    plain = Measurement(
        question="reconstruction",
        game="reconstruction",
        dataset="set",
        label="y",
        secret="records",
        defense="none",
        knowledge="static",
        adversary="agic",
        metric=metric,
        round=ACCUMULATED,
        seed=0,
        estimate=Estimate(value, value - 0.5, value + 0.5, 3),
        chance=0.0,
    )
    return replace(plain, **changed)


def attempt(psnr: float = 23.4, *, loss: float = 0.25, **names: Any) -> list[Measurement]:
    curve = {"psnr": ((0.0, 5.0), (50.0, psnr)), "loss": ((0.0, 1.0), (50.0, loss))}
    return [
        record("psnr", psnr, chance=11.0, curve=curve["psnr"], **names),
        record("ssim", 0.71, chance=0.02, **names),
        record("lpips", 0.12, **names),
        record("label_accuracy", 1.0, **names),
        record("loss", loss, curve=curve["loss"], **names),
    ]


def in_epochs() -> list[Measurement]:
    single = [record("psnr", 20.0 + at, round=at, chance=11.0) for at in (1, 2)]
    return [*attempt(25.5), record("matching_greedy", 0.75), *single]


def of_table(*names: str) -> list[Measurement]:
    return [
        one
        for name in names
        for one in (
            record("columns", 0.5, chance=0.25, adversary=name),
            record("columns: age", 1.0, chance=0.1, adversary=name),
            record(f"columns: {LONG}", 0.0, chance=0.4, adversary=name),
        )
    ]


def images(
    attempts: int, *, n: int = 3, channels: int = 3, truth: bool = True
) -> dict[str, Tensor]:
    names = [*(["truth"] if truth else []), *(str(at) for at in range(attempts))]
    rng = stream(0, "kept")
    return {
        name: torch.from_numpy(rng.integers(0, 256, (n, channels, 32, 32), dtype=np.uint8))
        for name in names
    }


ROWS: dict[str, RecordRows] = {
    "truth": [{"age": "41", LONG: "x"}, {"age": "(missing)", LONG: HOSTILE}],
    "0": [{"age": ["41.2", True], LONG: ["x", True]}, {"age": ["9", False], LONG: ["z", False]}],
}

HOSTILE_NAMES = {"adversary": LONG, "defense": LONG, "dataset": LONG, "label": LONG}
PAGES: Mapping[str, Callable[[], str]] = {
    "one": lambda: render_inversion(RUN, attempt(), images(1), {}),
    "many": lambda: render_inversion(
        RUN,
        [one for at in range(7) for one in attempt(10.0 + at, adversary=f"method {at}")],
        images(7, n=32),
        {},
    ),
    "hostile": lambda: render_inversion(
        replace(RUN, settings=dict(RUN.settings) | {"data": LONG, LONG: LONG}, notes=(LONG,)),
        attempt(**HOSTILE_NAMES),
        images(1, channels=1),
        {},
    ),
    "epochs": lambda: render_inversion(RUN, in_epochs(), images(1), {}),
    "small loss": lambda: render_inversion(RUN, attempt(loss=2e-7), images(1), {}),
    "table": lambda: render_inversion(RUN, of_table("exact"), {}, ROWS),
    "received": lambda: render_inversion(
        RUN, [record("loss", 0.1, curve=((0.0, 1.0), (9.0, 0.1)))], images(1, truth=False), {}
    ),
    "redacted": lambda: render_inversion(
        replace(RUN, settings=dict(RUN.settings) | {"redact": True}), attempt(), {}, {}
    ),
}


@cache
def page_of(name: str) -> str:
    """Return a page, drawn once for all tests that only read it."""
    return PAGES[name]()


SHOWN = {"one": 6, "many": 8 * 32, "hostile": 6, "epochs": 6, "small loss": 6, "received": 3}


def shown(page: str) -> list[np.ndarray]:
    """The pictures on a page, as Pillow reads them."""
    found = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(one)))) for one in found]


def text(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


@pytest.mark.parametrize(
    ("psnr", "says"),
    [
        (CLOSE_DB, "they look like the true ones"),
        (CLEAR_DB, "well enough to be recognised"),
        (13.0, "Parts of the images were rebuilt"),
        (12.9, "The images were not rebuilt"),
    ],
)
def test_the_verdict_says_what_the_figure_means(psnr: float, says: str) -> None:
    (line,) = sentences(attempt(psnr))
    assert says in line
    assert f"PSNR {psnr:g} dB" in line
    assert "3 images" in line
    assert "the mean colour alone scores 11 dB" in line


def test_a_single_image_has_no_interval() -> None:
    alone = record("psnr", 23.4, chance=11.0, estimate=Estimate(23.4, 23.4, 23.4, 1))
    (line,) = sentences([alone])
    assert "PSNR 23.4 dB (1 image, so no interval)" in line
    page = text(render_inversion(RUN, [alone], {}, {}))
    assert "23.4 to 23.4" not in page
    assert "Student" not in page
    assert "22.9 to 23.9" in text(page_of("one"))


def test_a_defense_and_who_knew_it_stand_in_the_title() -> None:
    lines = sentences(
        [
            *attempt(),
            *attempt(9, defense="sign"),
            *attempt(15, defense="sign", knowledge="adaptive"),
        ]
    )
    assert [line.split(":")[0] for line in lines] == [
        "agic",
        "agic, sign, static",
        "agic, sign, adaptive",
    ]


def test_the_page_shows_truth_and_attempts_pixel_by_pixel() -> None:
    kept = images(2)
    both = [*attempt(), *attempt(adversary="idlg")]
    found = shown(render_inversion(RUN, both, kept, {}))
    wanted = [x.permute(1, 2, 0).numpy() for name in ("truth", "0", "1") for x in kept[name]]
    assert len(found) == len(wanted) == 9
    assert all(np.array_equal(one, two) for one, two in zip(found, wanted, strict=True))
    gray = images(1, channels=1)
    found = shown(render_inversion(RUN, attempt(), gray, {}))
    assert np.array_equal(found[3], gray["0"][0, 0].numpy())


def test_ten_attempts_stand_in_their_order() -> None:
    """Names of tensors are text, in which 10 comes before 2."""
    many = [one for at in range(11) for one in attempt(adversary=f"m{at}")]
    kept = images(11, n=1)
    found = shown(render_inversion(RUN, many, dict(sorted(kept.items())), {}))
    assert np.array_equal(found[11], kept["10"][0].permute(1, 2, 0).numpy())
    assert np.array_equal(found[3], kept["2"][0].permute(1, 2, 0).numpy())


@pytest.mark.parametrize("name", ["one", "table", "received"])
def test_a_page_with_records_is_marked(name: str) -> None:
    assert "This page holds private records" in page_of(name)


def test_a_redacted_page_says_so_and_holds_none() -> None:
    page = page_of("redacted")
    assert "This page holds private records" not in page
    assert "neither true nor rebuilt records were kept" in page
    assert shown(page) == []


def test_every_figure_stands_in_the_table() -> None:
    page = text(page_of("epochs"))
    for figure in ("25.5", "0.71", "0.12", "0.75", "21", "22", "guess 11"):
        assert re.search(rf"(?<![\d.]){figure}(?![\d.])", page), figure


def test_labels_that_were_given_are_called_so() -> None:
    for labels, says in (("known", "1 given"), ("inferred", "1 0.5 to 1.5")):
        page = text(render_inversion(RUN, attempt(details={"labels": labels}), images(1), {}))
        assert says in page
        assert ("1 given" in page) == (labels == "known")


@pytest.mark.parametrize(
    ("details", "says"),
    [
        (
            {"matching": "greedy", "joint": "per-sample", "later": "0.1"},
            ("the paper's rule", "the paper's way", "1 in the first and 0.1 in later epochs"),
        ),
        (
            {"matching": "known", "joint": "all", "later": "1"},
            ("our rule", "the attacker knew", "updates weigh equally"),
        ),
    ],
)
def test_the_rules_over_several_epochs_are_said(
    details: dict[str, str], says: tuple[str, ...]
) -> None:
    measured = [replace(one, details=details) for one in attempt()]
    (text,) = (joint_sentence(test) for test in group_tests(measured))
    assert all(words in text for words in says)
    assert escape(text) in render_inversion(RUN, measured, {}, {}).replace("&#39;", "&#x27;")
    assert "updates weigh" not in render_inversion(RUN, attempt(), {}, {})


def test_a_value_is_struck_out_where_it_is_wrong_not_where_it_is_written_otherwise() -> None:
    page = page_of("table")
    assert re.findall(r'<td class="wrong">(.*?)</td>', page) == ["9", "z"]
    assert '<td class="right">41.2</td>' in page


def test_curves_have_the_colours_of_their_legend() -> None:
    """An attempt without a curve (``exact``) takes no line and no place in the legend."""
    tests = [*of_table("exact"), *of_table("dlg"), *of_table("agic")]
    curved = [
        record("loss", 0.1, adversary=name, curve=((0.0, 1.0), (9.0, value)))
        for name, value in (("dlg", 0.2), ("agic", 0.1))
    ]
    kept = {**ROWS, "1": ROWS["0"], "2": ROWS["0"]}
    page = render_inversion(RUN, [*tests, *curved], {}, kept)
    legend = re.findall(r'solid var\((--\w+)\)"></i>(\w+)<', page)
    assert [name for _, name in legend] == ["dlg", "agic"]
    (svg,) = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    for colour, _ in legend:
        assert colour in svg
    assert "--accent" not in svg  # that of the attempt without a curve


@pytest.mark.parametrize("last", [0.99, 0.9, 0.5, 0.25, 0.03, 1e-3, 2e-7, 0.0])
@pytest.mark.parametrize("first", [1.0, 0.0123])
def test_the_axis_of_the_loss_can_be_read(first: float, last: float) -> None:
    """Two labels at least, none twice, each a number that stands where it says."""
    curve = ((0.0, first), (9.0, first * last))
    svg = draw_curves(group_tests([record("loss", 0.1, curve=curve)]), "loss", name="c")
    ticks = re.findall(r'text-anchor: end[^>]* y="([\d.]+)"[^>]*>([^<]+)<', str(svg))
    values = [float(text.replace("\N{MINUS SIGN}", "-")) for _, text in ticks]
    assert len(values) == len(set(values)) >= 2
    heights = [-float(at) for at, _ in ticks]
    scaled = np.log(values) if last and last <= 1 / 3 else np.array(values)
    assert abs(np.corrcoef(scaled, heights)[0, 1]) > 0.9999


def test_everything_of_the_users_is_escaped() -> None:
    for name in ("hostile", "table"):
        page = page_of(name)
        assert "<script" not in page
        assert escape(HOSTILE, quote=False).split("`")[0] in page


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    for name, make in PAGES.items():
        assert make() == page_of(name), name
    save_file(images(1), tmp_path / "pictures.safetensors")
    first, again = (QUESTION.section(Answer(RUN, attempt()), tmp_path) for _ in range(2))
    assert first == again
    assert len(shown(first.html)) == 6


def no_truth(kept: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"0": kept["0"], "first": kept["truth"]}


BROKEN = {
    "cut": lambda kept, path: path.write_bytes(path.read_bytes()[:-9]),
    "text": lambda kept, path: path.write_text("no tensors"),
    "empty": lambda kept, path: path.write_bytes(b""),
    "names": lambda kept, path: save_file(no_truth(kept), path),
    "fewer": lambda kept, path: save_file({"truth": kept["truth"]}, path),
    "floats": lambda kept, path: save_file({k: x.float() for k, x in kept.items()}, path),
    "channels": lambda kept, path: save_file(images(1, channels=2), path),
    "counts": lambda kept, path: save_file({**kept, "0": kept["0"][:2].clone()}, path),
}


@pytest.fixture(scope="module")
def kept_pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of pictures that can be read."""
    path = tmp_path_factory.mktemp("pictures") / "pictures.safetensors"
    save_file(images(1), path)
    QUESTION.section(Answer(RUN, attempt()), path.parent)
    return path


@pytest.mark.parametrize("how", BROKEN)
def test_damaged_pictures_are_one_clear_line(tmp_path: Path, kept_pictures: Path, how: str) -> None:
    path = Path(shutil.copy(kept_pictures, tmp_path))
    BROKEN[how](images(1), path)
    with pytest.raises(InputError, match=r"pictures\.safetensors cannot be read") as refused:
        QUESTION.section(Answer(RUN, attempt()), tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "held",
    [
        "{",
        "[]",
        "3",
        json.dumps({"truth": ROWS["truth"]}),
        json.dumps({"0": ROWS["0"]}),
        json.dumps({**ROWS, "0": ROWS["0"][:1]}),
        json.dumps({**ROWS, "0": ROWS["truth"]}),
        json.dumps({**ROWS, "0": [{"age": ["1", True]}, ROWS["0"][1]]}),
        json.dumps({**ROWS, "truth": 3}),
        "\xff",
    ],
)
def test_damaged_rows_are_one_clear_line(tmp_path: Path, held: str) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(ROWS))
    QUESTION.section(Answer(RUN, of_table("exact")), tmp_path)
    path.write_bytes(held.encode("latin-1"))
    with pytest.raises(InputError, match=r"rows\.json cannot be read") as refused:
        QUESTION.section(Answer(RUN, of_table("exact")), tmp_path)
    assert "\n" not in str(refused.value)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.slow) if name in ("epochs", "redacted") else name
        for name in PAGES
    ],
)
def page_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / f"{request.param}.html"
    path.write_text(page_of(request.param), encoding="utf-8")
    return path


def test_browser_shows_it(browser: Browser, page_file: Path) -> None:
    charts = drawn(browser, page_file, *SCREENS)
    assert charts == {"table": 0, "received": 1}.get(page_file.stem, 2)


def test_browser_draws_every_picture(
    browser: Browser,
    page_file: Path,
) -> None:
    page, trouble = opened(browser, page_file, "light", 1280)
    sizes = page.evaluate("[...document.images].map(i => [i.naturalWidth, i.clientWidth])")
    words = page.evaluate("[...document.images].map(i => i.alt)")
    cut = page.evaluate(
        """() => [...document.querySelectorAll("figure svg")].flatMap(svg => {
            const frame = svg.getBoundingClientRect();
            return [...svg.querySelectorAll("text")].filter(one => {
                const box = one.getBoundingClientRect();
                return box.left < frame.left || box.right > frame.right;
            }).map(one => one.textContent);
        })"""
    )
    texts = page.locator("figure svg text").count()
    inside = page.evaluate(
        "[...document.querySelectorAll('.gallery')].every(g => g.scrollWidth >= g.clientWidth"
        " && g.getBoundingClientRect().right <= innerWidth)"
    )
    page.close()
    assert trouble == []
    assert len(sizes) == SHOWN.get(page_file.stem, 0)
    assert all(natural == 32 and drawn_wide > 0 for natural, drawn_wide in sizes)
    assert all(words)
    assert inside
    assert cut == []
    assert (texts > 0) == (page_file.stem != "table")


def test_a_grid_shows_the_verdict_of_its_cells() -> None:
    for figures, words in (
        (attempt(23.4), "Images recognisable"),
        (attempt(30.0), "Images rebuilt"),
        (of_table("exact"), "Rows not rebuilt"),
    ):
        means = {one.metric: one for one in figures}
        badge = QUESTION.badge(Group({}, "static", ("cell",), means))
        assert badge is not None
        assert badge.words == words
    assert QUESTION.badge(Group({}, "static", ("cell",), {})) is None

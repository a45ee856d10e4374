"""``leakgauge invert`` as a user meets it."""

import json
import math
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from leakgauge.cli import main
from leakgauge.core.checks import InputError
from leakgauge.core.rng import torch_stream
from leakgauge.inversion.run import answering
from leakgauge.inversion.run.attempt import Attempt
from leakgauge.inversion.run.rebuilt import Rebuilt
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.models import build
from leakgauge.results.measurements import read_measurements
from leakgauge.runs.store import read_description
from support.command import unless_given
from support.sources import people, pictures

Go = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("few_scales")

# --- the command ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = pictures(12, side=32)
    assert source.pixels is not None
    path = tmp_path_factory.mktemp("images") / "set.npz"
    np.savez(path, x=source.pixels.transpose(0, 2, 3, 1), y=source.frame["y"].to_numpy())
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "people.csv"
    people().to_csv(path, index=False)
    return path


@pytest.fixture
def go(
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Go:
    """Run the command with small settings; later options replace earlier ones."""
    monkeypatch.chdir(tmp_path)  # runs without --out stay there
    monkeypatch.setenv("COLUMNS", "400")

    def run(*words: object, on: object = images) -> tuple[int, str, str]:
        table = str(on).endswith((".csv", ".parquet"))
        usual = {"--label": "income"} if table else {"--net": "lenet"}
        options = [] if "--net" in words else unless_given(usual, words)
        return plainly("invert", on, "--images", 2, "--iterations", 3, *options, *words)

    def plainly(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["leakgauge", *map(str, words)])
        with pytest.raises(SystemExit) as done:
            main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    run.plainly = plainly
    return run


def told(go: Go, *words: object, **where: object) -> dict:
    code, out, err = go("--json", *words, **where)
    assert code == 0, err
    (line,) = out.splitlines()
    return json.loads(line, parse_constant=pytest.fail)  # no NaN, no Infinity


def test_json_has_what_a_pipeline_needs(go: Go) -> None:
    found = told(go, "--method", "agic")
    assert (found["method"], found["images"], found["iterations"]) == ("agic", 2, 3)
    for name in ("psnr", "ssim"):
        ends = found[name]
        assert set(ends) == {"value", "low", "high"}
        each = [one[name] for one in found["per_image"]]
        assert ends["value"] == pytest.approx(np.mean(each))
        assert ends["low"] < ends["value"] < ends["high"]
    assert found["lpips"] is None or set(found["lpips"]) == {"value", "low", "high"}
    assert found["label_accuracy"] == 1.0  # iDLG, one record each
    assert found["seconds_per_iteration"] > 0
    assert len(found["per_image"]) == 2
    assert found["warnings"] == []
    assert Path(found["report"]).is_file()


def test_the_seed_is_all_randomness(go: Go) -> None:
    aside = {"seconds_per_iteration": 0, "report": ""}
    one, again = (told(go, "--seed", 5) | aside for _ in range(2))
    assert one == again
    assert told(go, "--seed", 6)["psnr"] != one["psnr"]


def test_several_methods_and_epochs_are_reported(go: Go) -> None:
    found = told(go, "--method", "agic", "--method", "inverting-gradients")
    assert [one["method"] for one in found["results"]] == ["agic", "inverting-gradients"]
    assert found["psnr"] == found["results"][0]["psnr"]
    found = told(go, "--images", 4, "--batch-size", 2, "--epochs", 2, "--labels", "known")
    assert len(found["single_epochs"]) == 2
    without = {"greedy_no_pooling", "greedy_no_labels", "greedy_plain"}
    assert set(found["matching"]) == {"greedy", "optimal", "gradients", *without}
    assert found["joint"] == {"matching": "gradients", "rule": "all", "later_epochs_weigh": 1.0}
    assert len(found["per_image"]) == 4


@pytest.mark.parametrize("defense", ["prune:rate=0.9", "sign", "noise:std=0.3"])
def test_a_defense_is_attacked_without_and_with_knowing_it(go: Go, defense: str) -> None:
    found = told(go, "--method", "agic", "--defense", defense)["results"]
    assert [one["knowledge"] for one in found] == ["static", "static", "adaptive"]
    assert found[0]["defense"] == "none"
    assert {one["defense"] for one in found[1:]} == {defense}
    assert len({one["psnr"]["value"] for one in found}) == 3


def test_a_great_rate_warns_and_simulation_runs(go: Go) -> None:
    words = ("--local-steps", 2, "--labels", "known", "--local-lr", 1)
    plain = told(go, *words)
    assert any("simulate the local steps" in line for line in plain["warnings"])
    assert "simulate the local steps" in go(*words)[2]
    assert told(go, *words, "--simulate")["psnr"] != plain["psnr"]


def test_a_search_that_is_stopped_says_so(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, progress: Callable[[int, Tensor], None], **__: object) -> None:
        progress(0, torch.ones(2))
        raise KeyboardInterrupt

    monkeypatch.setattr(answering, "rebuild", stopped)
    code, out, err = go()
    assert (code, out) == (130, "")
    assert "stopped; to resume, repeat the command with --out" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("how", "says", "code"),
    [
        (KeyboardInterrupt(), "agic and the attempts after it: you stopped the run", 130),
        (InputError("no"), "agic: no", 2),
    ],
)
def test_what_was_rebuilt_before_is_kept(
    go: Go,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: BaseException,
    says: str,
    code: int,
) -> None:
    plain = answering.rebuild

    def until_agic(scenario: Scenario, attempt: Attempt, **given: Any) -> Rebuilt:
        if attempt.method == "agic":
            raise how
        return plain(scenario, attempt, **given)

    monkeypatch.setattr(answering, "rebuild", until_agic)
    words = ("--method", "dlg-adam", "--method", "agic", "--defense", "sign")
    got, out, err = go(*words, "--json", "--out", tmp_path / "kept")
    assert got == code
    assert {one["method"] for one in json.loads(out)["results"]} == {"dlg-adam"}
    assert says in err
    page = (tmp_path / "kept" / "report.html").read_text(encoding="utf-8")
    assert says in page
    if code == 130:  # A stopped question is not finished; the same command goes on with it.
        return
    code, out, err = go.plainly("report", tmp_path / "kept")
    assert code == 0, err
    assert says in (tmp_path / "kept" / "report.html").read_text(encoding="utf-8")


def test_the_default_number_of_images_makes_whole_updates(go: Go, images: Path) -> None:
    words = ("--json", "--net", "lenet", "--iterations", 1, "--batch-size", 3)
    code, out, err = go.plainly("invert", images, *words)
    assert code == 0, err
    assert json.loads(out)["images"] == 9


def test_plain_words(go: Go) -> None:
    code, out, err = go("--method", "dlg-adam")
    assert code == 0, err
    assert "dlg-adam: The images were not rebuilt. PSNR" in out
    assert "The search fell short for 2 of 2 updates: the true records lie nearer" in out
    assert "the mean colour alone scores" in out
    assert "report: leakgauge-runs" in out


def test_out_keeps_the_result_and_the_page_is_rebuilt_from_it(go: Go, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    first = told(go, "--out", folder)
    cell = folder / "cells" / "reconstruction"
    kept = {"cell.yaml", "measurements.jsonl", "attempts.json", "pictures.safetensors"}
    assert {one.name for one in cell.iterdir()} == {*kept, "record-tests.npz"}
    records = {r.metric: r for r in read_measurements(folder)}
    assert records["psnr"].estimate.value == first["psnr"]["value"]
    assert read_description(folder).settings["reconstruction"]["images"] == 2
    page = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    assert go.plainly("report", folder)[0] == 0
    assert (folder / "report.html").read_bytes() == page
    code, _, err = go("--out", folder, "--seed", 1)
    assert code == 2
    assert "holds another run (seed is 0 there, 1 here)" in err
    # What no longer can be read is refused, and the page is not written without it.
    (cell / "pictures.safetensors").write_bytes(b"\x10" + bytes(7) + b"{damaged")
    code, _, err = go.plainly("report", folder)
    assert code == 2
    assert err.count(os.linesep) == 1
    assert "pictures.safetensors' is damaged" in err


def test_redact_keeps_no_record(go: Go, images: Path, tmp_path: Path) -> None:
    raw = np.load(images)["x"][:2]
    traces = [raw[at].transpose(2, 0, 1)[0, 0].tobytes() for at in range(2)]  # a row of pixels
    for redact in (False, True):
        folder = tmp_path / f"kept-{redact}"
        words = ["--draw", "first", *(["--redact"] if redact else [])]
        assert told(go, "--out", folder, *words)["psnr"] is not None
        held = b"".join(one.read_bytes() for one in folder.rglob("*") if one.is_file())
        assert all((trace in held) is not redact for trace in traces)
        assert (b"data:image/png" in held) is not redact
    assert not list(folder.rglob("pictures.safetensors"))


def test_redact_keeps_no_row(go: Go, table: Path, tmp_path: Path) -> None:
    height = f"{people()['height'][0]:g}"
    for redact in (False, True):
        folder = tmp_path / f"rows-{redact}"
        words = ["--draw", "first", *(["--redact"] if redact else [])]
        told(go, "--method", "exact", "--out", folder, *words, on=table)
        held = b"".join(one.read_bytes() for one in folder.rglob("*") if one.is_file())
        assert (height.encode() in held) is not redact
        assert bool(list(folder.rglob("rows.json"))) is not redact


def test_a_table_is_reported_by_column(go: Go, table: Path) -> None:
    found = told(go, "--method", "exact", on=table)
    assert found["psnr"] is None
    assert found["columns"] == dict.fromkeys(("height", "town", "sex", "age"), 1.0)
    assert found["per_image"] == [{"columns": 1.0, "cells": 1.0}] * 2
    out = go("--method", "exact", on=table)[1]
    assert "100 % of the columns of 2 records were rebuilt right" in out
    assert found["iterations"] == 0  # nothing is searched for
    searched = told(go, "--method", "dlg", "--iterations", 2, on=table)
    assert searched["label_accuracy"] is not None
    assert 0 <= searched["per_image"][0]["columns"] <= 1


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files that no weights can come from."""

    folder = tmp_path_factory.mktemp("stored")
    (folder / "code.pt").write_bytes(pickle.dumps(Planted()))
    model = build("lenet", channels=3, classes=9, side=32, generator=torch_stream(0, "nine"))
    save_file(model.state_dict(), folder / "nine.safetensors")
    return folder


class Planted:
    """Would write a file if a pickle of it were run."""

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return os.system, ("touch it_ran",)


REFUSED = [
    (("--method", "agi"), "attack 'agi' is not known; did you mean 'agic'?"),
    (("--net", "slm"), "--net is 'slm'; did you mean 'slim'?"),
    (("--net", "mlp"), "--net is 'mlp', but 'set.npz' holds images"),
    (("--method", "exact"), "--method exact needs a table"),
    (("--init", "hee"), "--init is 'hee'; did you mean 'he'?"),
    (("--labels", "guessed"), "--labels is 'guessed'"),
    (("--images", 3, "--batch-size", 2), "--images is 3; expected a multiple of 2"),
    (("--images", 99), "asks for 99 records, but there are 12; lower --images"),
    (
        ("--images", 99, "--draw", "first"),
        "asks for records 0 to 98, but there are 12; lower --images",
    ),
    (("--images", 99, "--batch-size", 99), "an update has 99 records (--batch-size times"),
    (("--images", 0), "--images is 0"),
    (
        ("--side", 100_000),
        "--side is 100000; expected a number of at most 1,024",
    ),
    (("--batch-size", 0), "--batch-size is 0"),
    (("--epochs", 0), "--epochs is 0"),
    (("--epochs", 2, "--defense", "sign"), "--epochs goes with updates without a defense"),
    (("--epochs", 2, "--local-steps", 2, "--simulate"), "leave out --simulate"),
    (("--matching", "greedy"), "give --epochs of 2 or more"),
    (("--epochs", 2, "--matching", "best"), "--matching is 'best'"),
    (("--rough-iterations", 9), "--rough-iterations is about several epochs"),
    (("--epochs", 2, "--rough-iterations", 0), "--rough-iterations is 0"),
    (("--simulate",), "--simulate is about local steps"),
    (("--local-steps", 2, "--local-lr", -1), "--local-lr is -1"),
    (("--local-steps", 2, "--local-lr", "nan"), "--local-lr is 'nan'"),
    (("--iterations", 0), "--iterations is 0"),
    (("--restarts", 0), "--restarts is 0"),
    (("--label", "yy"), "did you mean 'y'?"),
    (("--hidden", 8), "--hidden is about the network for tables"),
    (("--weights", "no.safetensors"), "no such file"),
    (("--weights", "{stored}/code.pt"), "hold a pickle that would run code"),
    (("--weights", "{stored}/nine.safetensors"), "of other shapes ([9, 768], expected [3, 768])"),
    (("--lpips", "no.safetensors"), "LPIPS weights 'no.safetensors' cannot be read"),
    (("--defense", "perturb"), "choose another --defense"),
    (("--defense", "vib"), "choose another --defense"),
    (("--defense", "prun"), "did you mean 'prune'?"),
    (("--defense", "dpsgd", "--local-steps", 2), "take --local-steps 1 or another --defense"),
    (("--device", "abacus"), "--device abacus cannot be used here"),
]


@pytest.mark.parametrize(("words", "reason"), REFUSED)
def test_bad_input_is_one_clear_line(
    go: Go, stored: Path, tmp_path: Path, words: tuple[object, ...], reason: str
) -> None:
    code, out, err = go(*(str(word).format(stored=stored) for word in words))
    assert (code, out) == (2, "")
    assert reason in err
    assert err.startswith("error: ")
    assert err.count(os.linesep) == 1
    assert list(tmp_path.iterdir()) == []  # nothing was begun, and no pickle ran


def test_bad_input_of_tables_is_one_clear_line(go: Go, table: Path) -> None:
    for words, reason in (
        (("--net", "slim", "--label", "income"), "--net is 'slim', but 'people.csv' holds a table"),
        (("--images", 60), "so there are none to learn the encoding from; lower --images"),
        (("--method", "exact", "--epochs", 2), "leave out --epochs"),
        (("--label", "incme"), "did you mean 'income'?"),
    ):
        code, out, err = go(*words, on=table)
        assert (code, out, err.count(os.linesep)) == (2, "", 1)
        assert reason in err


# --- real data -----------------------------------------------------------------------------------


def test_cifar10_by_name_and_by_path_gives_the_first_test_images(
    data_folder: Path, go: Go, tmp_path: Path
) -> None:
    path = data_folder / "cifar10" / "cifar10_subset.npz"
    with np.load(path) as arrays:
        wanted = arrays["x_test"][:2].transpose(0, 3, 1, 2)
    found = {}
    for name, on in (("name", "cifar10"), ("path", path)):
        folder = tmp_path / name
        words = ("--draw", "first", "--iterations", 1)
        found[name] = told(go, *words, "--out", folder, on=on)
        cell = folder / "cells" / "reconstruction"
        assert np.array_equal(load_file(cell / "pictures.safetensors")["truth"].numpy(), wanted)
    assert found["name"]["psnr"] == found["path"]["psnr"]
    assert found["name"]["lpips"] is not None


def test_a_row_of_adult_is_read_off_with_every_column_right(data_folder: Path, go: Go) -> None:
    path = data_folder / "adult" / "adult.parquet"
    found = told(go, "--label", "income", "--method", "exact", "--images", 4, on=path)
    assert len(found["columns"]) >= 12
    assert set(found["columns"].values()) == {1.0}
    assert math.isclose(found["per_image"][0]["columns"], 1.0)
    assert np.mean([v for k, v in found["chance"].items() if k.startswith("columns:")]) < 0.9


def test_the_verdict_says_how_sure_counted_labels_are(go: Go, table: Path, tmp_path: Path) -> None:
    words = ("--batch-size", 3, "--images", 6, "--method", "leakgauge", "--iterations", 2)
    said = "Labels were counted from the gradient: the counts lie up to"
    code, out, err = go(*words, "--labels", "inferred", "--out", tmp_path / "counted", on=table)
    assert code == 0, err
    assert said in out
    found = [one for one in read_measurements(tmp_path / "counted") if "residual" in one.metric]
    (shown,) = re.findall(said + r" ([0-9.]+) records", out)
    assert float(shown) == pytest.approx(found[0].estimate.value, abs=5e-4)
    assert found[0].estimate.n == 2
    assert said not in go(*words, "--labels", "known", on=table)[1]

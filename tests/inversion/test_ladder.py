"""The ladder of realism: what each rung changes, where the attack breaks, and what is shown."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from leakgauge.cli import main
from leakgauge.core.checks import InputError
from leakgauge.inversion.checking import check
from leakgauge.inversion.report.ladder import Step, breaking, draw_ladder, ladder_sentence
from leakgauge.inversion.run.attempt import RUNGS, attempts_of, rungs_of, with_ladder
from leakgauge.inversion.spec import InversionSpec
from leakgauge.results.measurements import ACCUMULATED, Estimate, Measurement, read_measurements
from leakgauge.runs.spec import make_spec
from support.sources import pictures


def spec_of(**settings) -> InversionSpec:
    spec = make_spec(InversionSpec, {"data": "set.npz", "ladder": True, **settings})
    check(spec)
    return with_ladder(spec)


def test_each_rung_changes_one_thing() -> None:
    spec = spec_of(statistics="proxy")
    rungs = rungs_of(spec)
    assert list(rungs) == list(RUNGS)
    names = [name for name in rungs if name != "adam"]
    plain = {name: vars(one) for name, one in rungs.items()}
    changed = [
        {key for key, value in plain[after].items() if plain[before][key] != value}
        for before, after in pairwise(names)
    ]
    assert changed == [
        {"train_mode", "statistics"},
        {"local_steps", "simulate"},
        {"local_optimizer"},
        {"local_epochs", "reshuffle"},
        {"unknown"},
        {"clients"},
    ]
    assert rungs["gradient"].local_steps == 1
    assert not rungs["gradient"].train_mode
    assert plain["adam"]["local_steps"] == plain["momentum"]["local_steps"] == 2
    assert spec.records_per_update == 8  # of the highest rung, so all rungs have whole updates
    assert {one.labels for one in rungs.values()} == {"known"}


def test_settings_that_are_given_stay() -> None:
    spec = spec_of(batch_size=4, local_steps=3, clients=5, local_optimizer="adam", local_lr=0.1)
    assert (spec.records_per_update, spec.local_lr) == (60, 0.1)
    assert rungs_of(spec)["sum"].local_optimizer == "adam"
    plain = make_spec(InversionSpec, {"data": "set.npz"})
    assert with_ladder(plain) is plain


def test_the_attempts_are_the_rungs() -> None:
    attempts = attempts_of(spec_of())
    assert [one.rung for one in attempts] == list(RUNGS)
    assert len({one.title for one in attempts}) == len(RUNGS)
    assert attempts[0].client.is_plain
    assert attempts[-1].client.summed == 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"train_mode": True}, "leave it out"),
        ({"unknown": ("rate",)}, "leave it out"),
        ({"method": ("agic", "dlg")}, "name one --method"),
        ({"method": ("exact",)}, "name one --method"),
        ({"epochs": 2}, "leave out --epochs"),
        ({"images": 4}, "expected a multiple of 8"),
        ({"knowledge": ("adaptive",), "defense": ("sign",)}, "leave out --knowledge adaptive"),
    ],
)
def test_what_a_ladder_sets_itself_is_refused(settings, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check(make_spec(InversionSpec, {"data": "set.npz", "ladder": True, **settings}))


def step(number: int, low: float) -> Step:
    def one(metric: str, value: float) -> Measurement:
        estimate = Estimate(value, value - 1, value + 1, 8)
        return Measurement(
            *("reconstruction", "reconstruction", "d", "y", "records", "none", "static", "m"),
            *(metric, ACCUMULATED, 0, estimate, 0.0),
        )

    name = list(RUNGS)[number - 1]
    return Step(number, name, one("psnr", 15.0), one("gain", low + 1), None)


def test_the_attack_breaks_where_its_gain_is_not_shown() -> None:
    steps = [step(1, 3.0), step(2, 0.1), step(3, 0.0), step(4, 1.0)]
    assert breaking(steps) is steps[2]
    assert "breaks at rung 3 (local steps)" in ladder_sentence(steps)
    assert breaking(steps[:2]) is None
    assert "on every rung" in ladder_sentence(steps[:2])
    assert ladder_sentence([]) == ""
    assert draw_ladder([], name="a") is None
    dashed = "stroke-dasharray"
    assert dashed in str(draw_ladder(steps, name="a"))
    assert dashed not in str(draw_ladder(steps[:2], name="a"))


@pytest.mark.slow
def test_the_command_runs_all_rungs(tmp_path: Path, monkeypatch, capsys) -> None:
    source = pictures(40, side=32)
    assert source.pixels is not None
    path = tmp_path / "set.npz"
    np.savez(path, x=source.pixels.transpose(0, 2, 3, 1), y=source.frame["y"].to_numpy())
    out = tmp_path / "run"
    words = ["invert", path, "--ladder", "--net", "lenet", "--iterations", 1, "--out", out]
    monkeypatch.setattr("sys.argv", ["leakgauge", *map(str, words), "--json"])
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr()
    assert not done.value.code, said.err
    found = json.loads(said.out.splitlines()[-1])
    assert [one["rung"] for one in found["ladder"]] == list(RUNGS)
    broken = [one["rung"] for one in found["ladder"] if one["gain"]["low"] <= 0]
    assert found["breaks_at"] == (broken[0] if broken else None)
    assert any("assumes 0.001" in text for text in found["results"][-1]["warnings"])
    page = (out / "report.html").read_text()
    assert "The ladder of realism" in page
    assert "Guesses without the update" in page
    assert page.count("chosen by the truth") >= 1
    measured = read_measurements(out)
    assert {one.details.get("rung") for one in measured} == set(RUNGS)

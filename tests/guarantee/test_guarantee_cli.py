"""``leakgauge guarantee`` as a user runs it on a table."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from leakgauge.cli import main
from leakgauge.core.rng import stream
from leakgauge.guarantee import DPSGDMechanism, mechanism
from leakgauge.guarantee.report.sentences import VIOLATED
from leakgauge.guarantee.run import answering
from leakgauge.privacy.accounting import epsilon_gaussian
from leakgauge.results.measurements import read_measurements
from support.command import unless_given
from support.damage import rewrite

TRIALS = 200

CLIP, NOISE, DELTA = 2.0, 0.1, 1e-5
ROLES = {"--label": "income", "--attribute": "sex", "--group": "person"}
FEATURES = 4  # height, town, sex, age

Go = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, n = stream(0, "users"), 120
    sex = np.where(rng.random(n) < 0.5, "f", "m")
    frame = pd.DataFrame(
        {
            "height": rng.normal(170, 7, size=n) + 12 * (sex == "m"),
            "town": rng.choice(["a", "b", "c"], size=n),
            "sex": sex,
            "income": np.where(rng.random(n) < 0.5, "high", "low"),
            "person": np.arange(n) // 2,
            "age": rng.integers(18, 90, size=n),
            "planet": "earth",
        }
    )
    path = tmp_path_factory.mktemp("table") / "users.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def go(
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Go:
    """Run the command with small settings; later options replace earlier ones."""
    monkeypatch.chdir(tmp_path)  # runs without --out stay there

    def run(*words: object, on: object = table) -> tuple[int, str, str]:
        small = (
            "guarantee", on, *unless_given(ROLES, words),
            "--clip", CLIP, "--noise", NOISE, "--trials", TRIALS, "--hidden", 8,
            "--domain", "valid",
        )  # fmt: skip
        if "random" in words:
            small = small[:-2]
        monkeypatch.setattr("sys.argv", ["leakgauge", *map(str, (*small, *words))])
        monkeypatch.setenv("COLUMNS", "400")
        with pytest.raises(SystemExit) as done:
            main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    return run


def answer(go: Go, *words: object, exits: int = 0) -> dict:
    code, out, err = go("--json", *words)
    assert code == exits, err
    (line,) = out.splitlines()
    return json.loads(line, parse_constant=pytest.fail)  # no NaN, no Infinity


def lower_without_errors(half: int) -> float:
    """log of (1 - delta - upper) / upper, of Clopper-Pearson's upper end at 0 of ``half``."""
    upper = stats.binomtest(0, half).proportion_ci(0.95, "exact").high
    return math.log((1 - DELTA - upper) / upper)


def test_json_has_what_a_pipeline_needs(go: Go) -> None:
    found = answer(go)
    asked = {"canary": "crafted", "domain": "valid", "statistic": "likelihood-ratio", "seed": 0}
    asked |= {"attribute": "sex", "label": "income", "trials": TRIALS, "clip": CLIP}
    asked |= {"noise": NOISE, "delta": DELTA}
    assert {name: found[name] for name in asked} == asked
    assert sorted(found["values"]) == ["f", "m"]
    epsilon = found["epsilon"]
    shift = found["distance_over_clip"] * CLIP
    exact = {"pair_exact": shift, "mechanism_exact": 2 * CLIP, "mechanism_exact_at_clip": CLIP}
    for name, distance in exact.items():
        assert epsilon[name] == pytest.approx(epsilon_gaussian(distance, NOISE, DELTA).value)
    classic = CLIP / NOISE * math.sqrt(2 * math.log(1.25 / DELTA))
    assert epsilon["mechanism_classic"] == pytest.approx(classic)
    assert epsilon["per_attribute_classic"] == pytest.approx(classic / FEATURES)


def test_little_noise_saturates_the_trials(go: Go) -> None:
    found = answer(go)
    epsilon, half = found["epsilon"], TRIALS // 2
    assert found["distance_over_clip"] > 0.5  # ten standard deviations of the noise
    assert (found["saturated"], found["violated"]) == (True, False)
    assert epsilon["estimate"]["low"] == pytest.approx(lower_without_errors(half))
    assert epsilon["largest_showable_low"] == epsilon["estimate"]["low"]
    assert epsilon["largest_showable"] == pytest.approx(math.log(half * (1 - DELTA)))
    assert epsilon["estimate"]["high"] is None  # infinite: an error was never seen


@pytest.mark.calibration
def test_much_noise_shows_nothing(go: Go) -> None:
    found = answer(go, "--noise", 1000)
    assert found["epsilon"]["estimate"]["low"] == 0
    assert found["epsilon"]["gaussian"]["low"] == 0
    assert (found["saturated"], found["violated"]) == (False, False)


def test_every_epsilon_is_at_the_given_delta(go: Go) -> None:
    found = answer(go, "--delta", 0.01)
    shift = found["distance_over_clip"] * CLIP
    exact = epsilon_gaussian(shift, NOISE, 0.01).value
    assert found["epsilon"]["pair_exact"] == pytest.approx(exact)
    assert found["epsilon"]["largest_showable"] == pytest.approx(math.log(TRIALS / 2 * 0.99))


@pytest.mark.parametrize(
    "domains", [("valid",), pytest.param(("valid", "free"), marks=pytest.mark.slow)]
)
def test_crafted_is_further_apart_than_random(go: Go, domains: tuple[str, ...]) -> None:
    random, *crafted = (
        answer(go, *words, "--trials", 12)
        for words in (("--canary", "random"), *(("--domain", one) for one in domains))
    )
    assert (random["canary"], random["domain"]) == ("random", None)
    apart = [one["distance_over_clip"] for one in (random, *crafted)]
    assert apart == sorted(apart)
    assert apart[0] < apart[1]


def test_the_norm_sees_less_than_the_likelihood_ratio(go: Go) -> None:
    """At five standard deviations one projection is nearly always right, a norm is not."""
    noise = answer(go)["distance_over_clip"] * CLIP / 5
    ratio, norm = (
        answer(go, "--noise", noise, "--statistic", name) for name in ("likelihood-ratio", "norm")
    )
    assert (ratio["statistic"], norm["statistic"]) == ("likelihood-ratio", "norm")
    assert ratio["epsilon"]["estimate"]["low"] > norm["epsilon"]["estimate"]["low"]


def test_the_seed_is_all_randomness(go: Go) -> None:
    words = ("--canary", "random", "--noise", 1)
    one, other = (answer(go, *words) | {"report": None} for _ in range(2))
    assert one == other
    others = [answer(go, *words, "--seed", seed) for seed in range(6)]
    assert len({one["distance_over_clip"] for one in others}) == len(others)
    assert len({tuple(one["values"]) for one in others}) == 2  # records of both sexes are drawn


def test_numbers_are_attributes_too(go: Go) -> None:
    low, high = (float(value) for value in answer(go, "--attribute", "age")["values"])
    assert {low, high} <= set(map(float, range(18, 90)))


def test_plain_words(go: Go) -> None:
    code, out, err = go("--verbose")
    assert code == 0, err
    assert "'sex'" in out
    assert "crafted record (domain: valid)" in out
    assert f"epsilon is at least {lower_without_errors(TRIALS // 2):.3g} " in out
    assert "Not one trial went wrong" in out
    promised = answer(go)["epsilon"]
    assert f"Promised: epsilon is at most {promised['pair_exact']:.3g} for this record" in out
    assert f"and {promised['mechanism_exact']:.3g} for the worst one" in out
    assert "nothing against the promise" in out
    assert "'planet' was left out" in err
    assert "not saturated" in go("--noise", 1000, "--canary", "random", "--verbose")[1]


def test_a_broken_mechanism_is_named(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise is a hundredth of what is claimed."""
    words = ("--noise", 10)
    assert answer(go, *words)["violated"] is False
    weak = {"dpsgd": lambda dpsgd: DPSGDMechanism(dpsgd.clip, dpsgd.noise / 100)}
    monkeypatch.setattr(mechanism, "BUILDERS", weak)
    assert answer(go, *words, exits=3)["violated"] is True
    out = go(*words)[1]
    assert VIOLATED in out
    assert "nothing against the promise" not in out


def test_scores_of_the_wrong_sign_are_said(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(dpsgd):
        weak = DPSGDMechanism(dpsgd.clip, dpsgd.noise / 100)
        return lambda grads, generator: {n: -one for n, one in weak(grads, generator).items()}

    words = ("--noise", 10)
    assert "turned round" not in go(*words, "--verbose")[1]
    monkeypatch.setattr(mechanism, "BUILDERS", {"dpsgd": build})
    code, out, _ = go(*words, "--verbose")
    assert code == 3
    assert VIOLATED in out
    assert "The scores are turned round" in out


def test_out_keeps_the_result(go: Go, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    first = answer(go, "--out", folder)
    assert Path(first["report"]) == folder / "report.html"
    names = {one.name for one in folder.iterdir() if not one.name.startswith(".")}
    assert names == {"run.yaml", "measurements.jsonl", "cells", "report.html", "timings.json"}
    assert answer(go, "--out", folder) == first  # the same command may come again
    elsewhere = answer(go)
    assert {**elsewhere, "report": ""} == {**first, "report": ""}
    assert Path(elsewhere["report"]).parent.parent == Path("leakgauge-runs")
    code, _, err = go("--out", folder, "--seed", 1)
    assert code == 2
    assert "holds another run (seed is 0 there, 1 here)" in err


def test_the_page_is_rebuilt_from_the_measurements(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    answer(go, "--out", folder)
    page = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    monkeypatch.setattr("sys.argv", ["leakgauge", "report", str(folder)])
    with pytest.raises(SystemExit) as done:
        main()
    assert not done.value.code
    assert (folder / "report.html").read_bytes() == page


def test_a_damaged_folder_is_one_line(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go("--out", tmp_path / "run")[0] == 0
    figures = tmp_path / "run" / "cells" / "guarantee" / "measurements.jsonl"
    first = figures.read_text().splitlines()[0] + "\n"
    for change, says in (
        (lambda: rewrite(figures, lambda text: first), "repeat the command of the run"),
        (lambda: figures.write_text(""), "does not match its checksum; repeat the command"),
    ):
        change()
        monkeypatch.setattr("sys.argv", ["leakgauge", "report", str(tmp_path / "run")])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert says in capsys.readouterr().err


def test_measurements_hold_the_json_s_figures_and_every_judged_score(
    go: Go, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    found = answer(go, "--out", folder, "--noise", 0.3, "--statistic", "norm")
    figures = {one.metric: one for one in read_measurements(folder)}
    for metric, name in (("epsilon", "estimate"), ("epsilon_in_sample", "in_sample")):
        estimate, ends = figures[metric].estimate, found["epsilon"][name]
        assert [estimate.value, estimate.low] == [ends["value"], ends["low"]]
        assert estimate.high == ends["high"] or ends["high"] is None
    histogram = figures["epsilon"].histogram
    assert histogram is not None
    assert sum(histogram.null) == sum(histogram.alternative) == TRIALS // 2
    assert figures["epsilon"].theory["pair_exact"] == found["epsilon"]["pair_exact"]
    ratio = figures["per_attribute_ratio"].estimate.value
    yardstick = found["epsilon"]["per_attribute_classic"]
    assert ratio == pytest.approx(yardstick / found["epsilon"]["in_sample"]["value"])


OWN = """
import torch

def right(grads, generator):
    return released(grads, generator, {noise})

def broken(grads, generator):
    return released(grads, generator, {noise} / 100)

def failing(grads, generator):
    raise RuntimeError("no noise today")

def released(grads, generator, std):
    norm = torch.sqrt(sum(leaf[0].square().sum() for leaf in grads.values()))
    scale = min(1.0, {clip} / float(norm))
    return {{
        name: scale * leaf[0] + std * torch.randn(leaf[0].shape, generator=generator)
        for name, leaf in grads.items()
    }}
"""


def test_a_mechanism_of_the_user_s(go: Go, tmp_path: Path) -> None:
    """Its clipping and noise are right, too small by a hundred, or it fails."""
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN.format(clip=CLIP, noise=10))
    words = ("--noise", 10, "--mechanism")
    right = answer(go, *words, f"{name}:right")
    assert (right["violated"], right["mechanism"]) == (False, f"{name}:right")
    assert answer(go, *words, f"{name}:broken", exits=3)["violated"] is True
    code, out, err = go(*words, f"{name}:failing")
    assert (code, out) == (2, "")
    assert f"--mechanism {name}:failing raised RuntimeError: no noise today" in err


def test_what_is_assumed_of_an_own_mechanism_is_said(go: Go, tmp_path: Path) -> None:
    """With the norm as the score, noise on half of the coordinates looks the same."""
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN.format(clip=CLIP, noise=10))
    own = "--noise", 10, "--mechanism", f"{name}:right"
    said, of_pilot = "assumes independent noise in every coordinate", "A pilot looked for"
    assert of_pilot in go(*own)[1]
    assert said in go(*own, "--statistic", "norm", "--out", tmp_path / "norm")[1]
    ours = go("--noise", 10, "--out", tmp_path / "ours")[1]
    assert not any(one in ours for one in (said, of_pilot))


def test_where_the_releases_of_an_own_mechanism_are_read_is_said(go: Go, tmp_path: Path) -> None:
    """Half of the coordinates have no noise; along the difference alone it is not refuted."""
    name = f"half_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        OWN.format(clip=CLIP, noise=10)
        + """

def half(grads, generator):
    without, noisy = released(grads, generator, 0.0), right(grads, generator)
    return {name: mixed(leaf, without[name]) for name, leaf in noisy.items()}

def mixed(one, other):
    return torch.where(torch.arange(one.numel()).reshape(one.shape) % 2 == 0, one, other)
"""
    )
    out = go("--noise", 10, "--mechanism", f"{name}:half")[1]
    assert "The promise does not hold" in out
    assert "Some coordinates have less noise than others, and the releases are read there." in out


def test_opacus_by_name(go: Go) -> None:
    found = answer(go, "--mechanism", "opacus")
    assert (found["mechanism"], found["saturated"], found["violated"]) == ("opacus", True, False)


REFUSED = [
    (("--attribute", "sxe"), "'sxe' is none of the features; did you mean 'sex'?"),
    (("--attribute", "planet"), "column 'planet' was left out: it has one value"),
    (("--attribute", "income"), "as --label names it"),
    (("--attribute", "person"), "as --group names it"),
    (("--drop", "sex"), "as --drop names it"),
    (("--noise", 0), "epsilon is infinite"),
    (("--noise", -1), "noise is -1"),
    (("--noise", "inf"), "noise is 'inf'"),
    (("--clip", 0), "clip is 0"),
    (("--clip", -2), "clip is -2"),
    (("--delta", 0), "--delta is 0"),
    (("--delta", 1), "--delta is 1"),
    (("--delta", "nan"), "--delta is 'nan'"),
    (("--trials", 0), "trials is 0"),
    (("--trials", 10), "10 trials cannot show any epsilon"),
    (("--canary", "worst"), "--canary is 'worst'"),
    (("--domain", "bx"), "did you mean 'box'?"),
    (("--canary", "random", "--domain", "box"), "--domain needs --canary crafted"),
    (("--mechanism", "dpsdg"), "did you mean 'dpsgd'?"),
    (("--mechanism", "no_such_module:release"), "cannot import 'no_such_module'"),
    (("--device", "abacus"), "--device abacus cannot be used here"),
    (("--statistic", "nrm"), "did you mean 'norm'?"),
    (("--hidden", 0), "--hidden is 0"),
    (("--label", "incme"), "did you mean 'income'?"),
]


@pytest.mark.parametrize(("words", "reason"), REFUSED)
def test_bad_input_is_one_clear_line(go: Go, words: tuple[object, ...], reason: str) -> None:
    code, out, err = go(*words)
    assert (code, out) == (2, "")
    assert reason in err
    assert err.startswith("error: ")
    assert err.count(os.linesep) == 1


def test_an_audit_that_is_stopped_can_go_on(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(answering, "audit_pair", stopped)
        code, out, err = go("--out", tmp_path / "run")
    assert (code, out) == (130, "")
    assert "stopped; to resume, repeat the command" in err
    assert "Traceback" not in err
    assert answer(go, "--out", tmp_path / "run") == {
        **answer(go), "report": str(tmp_path / "run" / "report.html"),
    }  # fmt: skip


def test_fewest_trials_that_can_show_something(go: Go) -> None:
    assert "expected 12 or more" in go("--trials", 11)[2]
    assert answer(go, "--trials", 12)["trials"] == 12


def test_images_are_refused(go: Go, tmp_path: Path) -> None:
    pictures = stream(0, "pictures").integers(0, 255, (8, 32, 32), dtype=np.uint8)
    np.savez(tmp_path / "faces.npz", x=pictures, y=np.arange(8) % 2, sex=np.arange(8) % 2)
    code, out, err = go("--label", "y", on=tmp_path / "faces.npz")
    assert (code, out) == (2, "")
    assert "'faces.npz' holds images, no attributes; bring a table" in err


def test_a_known_secret_is_a_feature(go: Go) -> None:
    """A named dataset has its own secrets and columns to drop; the attribute is none of them."""
    words = ("--label", "any_visit", "--attribute", "female", "--group", "zper", "--json")
    code, out, err = go(*words, "--canary", "random", on="randhie")
    assert code == 0, err
    assert sorted(json.loads(out)["values"]) == ["no", "yes"]

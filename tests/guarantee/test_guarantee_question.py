"""The question of a guarantee from its settings to its section, without the command line."""

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Task
from leakgauge.data.source import Source
from leakgauge.data.table import Roles
from leakgauge.defenses import dpsgd
from leakgauge.guarantee import AuditResult, mechanism
from leakgauge.guarantee import spec as settings
from leakgauge.guarantee.metrics import METRICS
from leakgauge.guarantee.question import QUESTION
from leakgauge.guarantee.report.sentences import EMPTY, KEPT, VIOLATED
from leakgauge.guarantee.run import answering, record
from leakgauge.guarantee.run.preparing import prepare
from leakgauge.guarantee.search import Craft
from leakgauge.guarantee.spec import BOX, Domain, GuaranteeSpec
from leakgauge.privacy.accounting import epsilon_gaussian
from leakgauge.report.page import next_steps
from leakgauge.results.measurements import ACCUMULATED, read_measurements
from leakgauge.runs.audit import AuditRun, describe, prepare_all, run_audit
from leakgauge.runs.question import Answer, Silent
from leakgauge.runs.sources import task_source
from leakgauge.runs.spec import declared, make_spec

SMALL = {"attribute": "sex", "label": "income", "trials": 200, "hidden": (8,), "domain": "valid"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, n = stream(0, "users"), 80
    frame = pd.DataFrame(
        {
            "height": rng.normal(170, 7, size=n).round(),
            "town": rng.choice(["a", "b", "c"], size=n),
            "sex": rng.choice(["f", "m"], size=n),
            "income": rng.choice(["high", "low"], size=n),
            "planet": "earth",
        }
    )
    path = tmp_path_factory.mktemp("table") / "users.csv"
    frame.to_csv(path, index=False)
    return path


def spec_of(table: Path, **more: Any) -> GuaranteeSpec:
    return GuaranteeSpec(**{"data": str(table), "clip": 2.0, "noise": 0.1, **SMALL, **more})


def resolved(table: Path, **more: Any) -> GuaranteeSpec:
    spec = prepare_all({"guarantee": (QUESTION, spec_of(table, **more))})["guarantee"].spec
    assert isinstance(spec, GuaranteeSpec)
    return spec


class Notes(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def run(table: Path, out: Path, progress: Silent | None = None, **more: Any) -> AuditRun:
    asked = prepare_all({"guarantee": (QUESTION, spec_of(table, **more))})
    return run_audit(out, describe("audit", asked), asked, progress=progress or Silent())


def answer_of(table: Path, out: Path, **more: Any) -> Answer:
    return run(table, out, **more).answers["guarantee"]


# --- from settings to measurements ----------------------------------------------------------------


def test_a_run_measures_and_a_second_one_reads_it_back(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(table, tmp_path / "out")
    figures = {one.metric: one for one in first.measurements}
    assert set(figures) <= set(METRICS)
    assert {one.round for one in figures.values()} == {ACCUMULATED}
    assert {one.question for one in figures.values()} == {"guarantee"}
    # Two clips apart at most, and no test can show more than the exact promise.
    assert 0 < figures["distance_over_clip"].estimate.value <= 2
    assert figures["epsilon"].estimate.low <= figures["epsilon"].theory["pair_exact"]
    assert read_measurements(tmp_path / "out") == first.measurements
    monkeypatch.setattr(answering, "audit_pair", pytest.fail)
    assert run(table, tmp_path / "out").answers == first.answers


@pytest.mark.parametrize(
    ("canary", "domain"),
    [
        ("crafted", "valid"),
        ("random", None),
        pytest.param("crafted", None, marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_keeps_the_record_and_measures_the_same(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canary: str, domain: str | None
) -> None:
    more = {"canary": canary, "domain": domain, "attribute": "height", "noise": 1.0}
    whole = run(table, tmp_path / "whole", **more)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(answering, "audit_pair", killed)
        with pytest.raises(KeyboardInterrupt):
            run(table, tmp_path / "killed", **more)
    monkeypatch.setattr(record, "craft", pytest.fail)
    monkeypatch.setattr(record, "choose_pairs", pytest.fail)
    assert run(table, tmp_path / "killed", **more).measurements == whole.measurements


def test_json_names_the_infinite_ends(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measurements hold finite numbers; the JSON is compared with the audit's own result."""
    results: list[AuditResult] = []
    original = answering.audit_pair

    def audit_pair(*args: Any, **more: Any) -> AuditResult:
        results.append(original(*args, **more))
        return results[-1]

    monkeypatch.setattr(answering, "audit_pair", audit_pair)
    for noise in (0.001, 1.0, 1000.0):
        answer = answer_of(table, tmp_path / str(noise), noise=noise)
        epsilon = QUESTION.to_json(answer, tmp_path)["epsilon"]
        for name in ("estimate", "gaussian", "in_sample"):
            own = getattr(results[-1], name)
            high = own.high if math.isfinite(own.high) else None
            assert epsilon[name] == {"value": own.value, "low": own.low, "high": high}
    assert results[0].estimate.high == math.inf > results[-1].estimate.high


# --- settings -------------------------------------------------------------------------------------


def test_canary_and_domain_become_one_setting(table: Path) -> None:
    for given, wanted in (
        ({"canary": "crafted", "domain": "box"}, "crafted-box"),
        ({"canary": "crafted", "domain": None}, "crafted-box"),
        ({"canary": "crafted-valid", "domain": None}, "crafted-valid"),
        ({"canary": "random", "domain": None}, "random"),
    ):
        spec = resolved(table, **given)
        assert (spec.canary, spec.domain) == (wanted, None)


@pytest.mark.parametrize(
    ("given", "clip", "noise", "noted"),
    [
        ({}, 2.0, 0.1, True),
        ({"defense": ("none", "prune:rate=0.9")}, 2.0, 0.1, True),
        ({"defense": ("none", "dpsgd:clip=1,noise=0.5")}, 1.0, 0.5, False),
        ({"defense": ("dpsgd",)}, dpsgd.DPSGD().clip, dpsgd.DPSGD().noise, False),
        ({"defense": ("dpsgd:clip=1,noise=0.5",), "noise": 3.0}, 1.0, 3.0, False),
        ({"clip": 2.0, "noise": 0.1}, 2.0, 0.1, False),
    ],
)
def test_clip_and_noise_come_from_the_question_then_from_the_defenses(
    table: Path, tmp_path: Path, given: dict[str, Any], clip: float, noise: float, noted: bool
) -> None:
    progress = Notes()
    spec = {"clip": None, "noise": None, "trials": 12, "canary": "random", "domain": None, **given}
    answer = run(table, tmp_path / "out", progress, **spec).answers["guarantee"]
    assert (answer.run.settings["clip"], answer.run.settings["noise"]) == (clip, noise)
    assert answer.measurements[0].defense == f"dpsgd:clip={clip:g},noise={noise:g}"
    said = [text for text in progress.notes if "promises differential privacy" in text]
    assert bool(said) == noted
    assert progress.notes == list(answer.run.notes)
    assert any("'planet' was left out" in text for text in progress.notes)


def test_a_known_dataset_has_a_secret_to_audit(table: Path) -> None:
    frame = pd.read_csv(table)
    roles = Roles("income", ("sex",), drop=("planet",))
    source = Source("users", frame, None, roles, "f" * 64)
    spec = prepare(replace(spec_of(table), attribute=None, label=None), source).spec
    assert (spec.attribute, spec.label, spec.drop) == ("sex", "income", ("planet",))
    town = prepare(replace(spec_of(table), attribute="town", label=None), source).spec
    assert town.attribute == "town"


def test_bins_of_the_attribute_are_left_out_with_a_note(table: Path, tmp_path: Path) -> None:
    """An audit with several questions may cut the secret for the others."""
    more = {"attribute": "height", "canary": "random", "domain": None, "trials": 12}
    plain = run(table, tmp_path / "plain", **more).answers["guarantee"]
    cut = run(table, tmp_path / "cut", bins={"height": 3}, **more).answers["guarantee"]
    assert cut.measurements == plain.measurements
    assert any("'height' is not cut into ranges" in note for note in cut.run.notes)


REFUSED = [
    ({"attribute": None}, "no attribute of 'users.csv' is named"),
    ({"attribute": "sxe"}, "did you mean 'sex'?"),
    ({"attribute": "planet"}, "column 'planet' was left out"),
    ({"attribute": "income"}, "as --label names it"),
    ({"drop": ("sex",)}, "as --drop names it"),
    ({"label": "incme"}, "did you mean 'income'?"),
    ({"noise": 0.0}, "noise is 0, so epsilon is infinite"),
    ({"clip": -1.0}, "--clip is -1"),
    ({"defense": ("dpsgd:noise=0",), "noise": None}, "epsilon is infinite"),
    ({"defense": ("dpsgd:niose=1",), "noise": None}, "did you mean 'noise'?"),
    ({"delta": 1.0}, "--delta is 1; expected a number between 0 and 1"),
    ({"trials": 10}, "10 trials cannot show any epsilon"),
    ({"hidden": (0,)}, "--hidden is 0"),
    ({"canary": "worst"}, "--canary is 'worst'"),
    ({"canary": "crafted-free"}, "--domain needs --canary crafted"),
    ({"mechanism": "opacs"}, "did you mean 'opacus'?"),
    ({"mechanism": "no_such_module:release"}, "cannot import 'no_such_module'"),
    ({"statistic": "nrm"}, "did you mean 'norm'?"),
]


@pytest.mark.parametrize(("more", "says"), REFUSED)
def test_refusals(table: Path, more: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as refused:
        resolved(table, **more)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_data_without_columns_are_refused_and_the_message_says_what_would_do(table: Path) -> None:
    dataset = Dataset(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))
    task = task_source(Task(nn.Linear(2, 2), cross_entropy), dataset, name="my_module:build")
    pixels = np.zeros((4, 3, 8, 8), dtype=np.uint8)
    images = Source("faces.npz", pd.DataFrame({"y": [0, 1, 0, 1]}), pixels, None, "f" * 64)
    for source, says in ((task, "bring a table instead of --task"), (images, "bring a table")):
        with pytest.raises(InputError, match=says):
            prepare(spec_of(table), source)


def test_a_paper_s_figure_is_of_an_adversary_that_knows_the_mechanism() -> None:
    assert GuaranteeSpec().unmeasured(ADAPTIVE, ACCUMULATED) == ""
    assert "adaptive" in GuaranteeSpec().unmeasured(STATIC, ACCUMULATED)
    assert "adaptive" in GuaranteeSpec().unmeasured(ADAPTIVE, 1)


def test_the_default_search_is_the_paper_s_in_the_box() -> None:
    assert (Craft().domain, Craft().distance) == ("box", "clipped") == (BOX, record.OBJECTIVES[0])


def test_settings_name_what_the_room_has() -> None:
    assert set(settings.STATISTICS) == set(answering.STATISTICS)
    assert set(settings.MECHANISMS) == set(mechanism.BUILDERS)
    assert BOX in get_args(Domain)
    assert (dpsgd.DPSGD().clip, dpsgd.DPSGD().noise) == (settings.CLIP, settings.NOISE)
    assert set(GuaranteeSpec.aliases.values()) <= set(declared(GuaranteeSpec))


def test_settings_and_question_load_nothing_heavy() -> None:
    heavy = ("torch", "matplotlib", "jinja2", "sklearn")
    code = (
        "import sys, leakgauge.guarantee.spec, leakgauge.guarantee.question\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- the section ----------------------------------------------------------------------------------


def test_the_section_of_a_kept_promise(table: Path, tmp_path: Path) -> None:
    answer = answer_of(table, tmp_path / "out", seed=3, noise=2.41)
    section = QUESTION.section(answer, tmp_path)
    (row,) = section.rows
    assert (section.name, section.title) == ("guarantee", QUESTION.title)
    assert (row.ask, row.verdict, row.level) == ("guarantee", KEPT, "none")
    assert row.estimate == answer.measurements[0].estimate
    assert section.lines[0].text == row.text
    assert section.effect is None
    assert not section.missing


def test_a_promise_above_20_protects_nothing_whatever_the_audit_shows(
    table: Path, tmp_path: Path
) -> None:
    answer = answer_of(table, tmp_path / "out", canary="random", domain=None)
    section = QUESTION.section(answer, tmp_path)
    (row,) = section.rows
    promised = epsilon_gaussian(4.0, 0.1, 1e-5).value
    assert (row.verdict, row.level, row.broken) == (EMPTY, "strong", False)
    assert row.metric.startswith(f"Epsilon, promised {promised:.0f}, ")
    assert row.text.startswith("Promised: ")
    assert "protects nothing" in row.text
    # The advice: the named noise promises what the sentence says, and a little less does not.
    advised = re.findall(r"`--noise (\S+)` promises (\d+)", row.text)
    assert [epsilon for _, epsilon in advised] == ["8", "1"]
    for noise, epsilon in advised:
        assert epsilon_gaussian(4.0, float(noise), 1e-5).value <= float(epsilon)
        assert epsilon_gaussian(4.0, 0.99 * float(noise), 1e-5).value > float(epsilon)
    assert next_steps([section])[0].startswith(f"The strongest finding is `guarantee`: {EMPTY}")
    assert "--defense" not in " ".join(next_steps([section]))
    # The interval has no upper end where no release was mistaken, and shows no stand-in.
    assert row.interval == f"{row.estimate.low:.3f} or more"
    assert f"{promised:.3f}" not in section.html


def test_the_promise_of_a_training_decides_what_it_is_worth(table: Path, tmp_path: Path) -> None:
    """One release promises about 8, and 25 of them more than 20."""
    more = {"canary": "random", "domain": None, "noise": 2.41, "releases": 25}
    section = QUESTION.section(answer_of(table, tmp_path / "out", **more), tmp_path)
    (row,) = section.rows
    exact = epsilon_gaussian(4.0 * 5, 2.41, 1e-5).value
    assert (row.verdict, row.level) == (EMPTY, "strong")
    assert f"Over 25 releases it is at most {exact:.3g} for the worst one" in row.text
    (noise, epsilon), *_ = re.findall(r"`--noise (\S+)` promises (\d+)", row.text)
    assert epsilon_gaussian(4.0 * 5, float(noise), 1e-5).value <= float(epsilon) == 8
    assert epsilon_gaussian(4.0 * 5, 0.99 * float(noise), 1e-5).value > 8


def test_anchors_of_the_section_have_its_name(table: Path, tmp_path: Path) -> None:
    section = QUESTION.section(answer_of(table, tmp_path / "out"), tmp_path)
    anchors = set(re.findall(r' id="([^"]+)"', section.html))
    assert {name for name, _ in section.nav} <= anchors
    assert all(name.startswith("guarantee-") for name in anchors)
    assert set(re.findall(r'aria-labelledby="([^"]+)"', section.html)) <= anchors
    assert "<h2" not in section.html
    assert not re.search(
        r"\b(nan|inf|None)\b", re.sub("<svg.*?</svg>", "", section.html, flags=re.S)
    )


def test_a_broken_mechanism_is_the_strongest_verdict(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its noise is a hundredth of what it claims."""
    name = f"weak_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        "from leakgauge.guarantee import DPSGDMechanism\n"
        "def release(grads, generator):\n"
        "    return DPSGDMechanism(2.0, 0.1)(grads, generator)\n"
        "def fail(grads, generator):\n"
        "    raise RuntimeError('no noise today')\n"
    )
    monkeypatch.chdir(tmp_path)
    answer = answer_of(table, tmp_path / "out", noise=10.0, mechanism=f"{name}:release")
    section = QUESTION.section(answer, tmp_path)
    assert (section.rows[0].verdict, section.rows[0].level) == (VIOLATED, "strong")
    assert section.lines[0].level == "strong"
    assert QUESTION.to_json(answer, tmp_path)["violated"] is True
    with pytest.raises(InputError, match=f"{name}:fail raised RuntimeError: no noise today"):
        answer_of(table, tmp_path / "failed", mechanism=f"{name}:fail")


def next_spec(section_command: str, table: Path) -> GuaranteeSpec:
    """The settings behind ``leakgauge guarantee TABLE --key value ...``."""
    words = section_command.split()
    assert words[:3] == ["leakgauge", "guarantee", str(table)]
    given = dict(zip(words[3::2], words[4::2], strict=True))
    known = {one.flag: one for one in declared(GuaranteeSpec).values()}
    values = {known[flag].name: known[flag].item(value) for flag, value in given.items()}
    spec = make_spec(GuaranteeSpec, {**values, "data": str(table)})
    assert isinstance(spec, GuaranteeSpec)
    return spec


@pytest.mark.parametrize(
    ("more", "changes"),
    [
        ({}, {"noise": 2.41}),  # promises an epsilon of 970, and 2.41 one of 8
        ({"noise": 1000.0, "canary": "random", "domain": None}, {"canary": "crafted-box"}),
        ({"noise": 1000.0}, None),
    ],
)
def test_the_next_command_changes_what_limits_the_audit(
    table: Path, tmp_path: Path, more: dict[str, Any], changes: dict[str, Any] | None
) -> None:
    section = QUESTION.section(answer_of(table, tmp_path / "out", **more), tmp_path)
    if changes is None:
        assert section.next_command == ""
        return
    spec = prepare_all({"guarantee": (QUESTION, next_spec(section.next_command, table))})
    assert spec["guarantee"].spec == replace(resolved(table, **more), **changes)


def test_a_saturated_audit_of_a_small_promise_gets_more_trials(table: Path, tmp_path: Path) -> None:
    answer = answer_of(table, tmp_path / "out")
    small = [
        replace(one, theory={**one.theory, "mechanism_exact": 10.0}) if one.theory else one
        for one in answer.measurements
    ]
    section = QUESTION.section(replace(answer, measurements=small), tmp_path)
    spec = prepare_all({"guarantee": (QUESTION, next_spec(section.next_command, table))})
    assert spec["guarantee"].spec == replace(resolved(table), trials=800)

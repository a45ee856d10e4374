"""The question when in training it leaks, on gradients that tell their batch, and that do not."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from leakgauge.core.checks import InputError
from leakgauge.core.rng import derive
from leakgauge.evidence.counted import is_blind, smallest_visible
from leakgauge.gradients.factored.factors import Factoring
from leakgauge.report.compare import Group, by_knowledge
from leakgauge.results.measurements import Estimate
from leakgauge.runs.question import Answer, Silent
from leakgauge.runs.work import WorkFolder
from leakgauge.tokens.evidence import assessment
from leakgauge.tokens.features import record_features
from leakgauge.tokens.metrics import METRICS
from leakgauge.tokens.question import QUESTION
from leakgauge.tokens.report.as_json import as_json
from leakgauge.tokens.report.levels import badge, level_of, level_of_peak
from leakgauge.tokens.report.rows import courses
from leakgauge.tokens.report.section import section
from leakgauge.tokens.run import measuring, seeing, summarising
from leakgauge.tokens.run.preparing import prepare
from leakgauge.tokens.run.streaming import pairs_of
from leakgauge.tokens.run.training import _batches, trained
from leakgauge.tokens.settings import CriticSettings
from leakgauge.tokens.sketch import Sketches
from leakgauge.tokens.sources import FixedPairs, PairSplit
from leakgauge.tokens.spec import TimelineSpec
from leakgauge.tokens.words import (
    ORACLE,
    ORACLE_BLIND,
    ORACLE_SAW,
    ORACLE_SEES,
    ORACLE_UNKNOWN,
    PLANTED,
    SMALLEST_SEEN,
)
from support.command import run
from support.linear import silent, telling
from support.sources import people, pictures, table_source

SMALL = {
    "task": "mine:build",
    "batch_size": 2,
    "checkpoints": (0, 2),
    "iterations": 5,
    "critic_iterations": 50,
    "width": 16,
}


def run_question(
    source, folder: Path, *, workers: int | None = 1, progress=None, **settings
) -> Answer:
    spec = TimelineSpec(**{**SMALL, **settings})
    QUESTION.check(spec)
    say = progress or Silent()
    return QUESTION.run(QUESTION.prepare(spec, source), WorkFolder(folder), say, workers=workers)


@pytest.fixture(scope="module")
def answer(tmp_path_factory) -> Answer:
    return run_question(telling(), tmp_path_factory.mktemp("telling"))


@pytest.fixture(scope="module")
def brief(tmp_path_factory) -> Answer:
    """The figures of critics that hardly learn."""
    return run_question(telling(), tmp_path_factory.mktemp("brief"), critic_iterations=5)


@pytest.fixture(scope="module")
def nothing(tmp_path_factory) -> Answer:
    """The figures of gradients that do not depend on records."""
    return run_question(silent(), tmp_path_factory.mktemp("silent"), checkpoints=(0,))


def curve_of(answer: Answer):
    (course,) = courses(answer.measurements)
    (curve,) = course.curves
    return curve


def test_gradients_that_tell_their_batch_have_a_bound_above_0_and_a_placebo_near_0(
    answer: Answer,
) -> None:
    curve = curve_of(answer)
    for step in (0, 2):
        bound, placebo = (curve.at(name, step) for name in ("information", "information_placebo"))
        assert bound.low > 0.3
        assert abs(placebo.value) < 0.1
        assert placebo.low <= 0
        gap = curve.at("critic_gap_placebo", step)
        assert gap.low <= 0 <= gap.high
    (course,) = courses(answer.measurements)
    assert level_of(course.peak.estimate, course.placebo.estimate) in ("strong", "clear")


def test_gradients_that_do_not_depend_on_records_show_nothing(nothing: Answer) -> None:
    found = nothing
    (course,) = courses(found.measurements)
    assert course.peak.estimate.low <= 0
    assert course.peak.estimate.high < 0.2
    (row,) = section(found, QUESTION, Path()).rows
    assert row.level == "inconclusive", "a constant critic does not say what a run could have seen"
    assert "No leak is found by `infonce` with the `autoencoder` token" in row.text
    assert "no critic did better than a constant one" in row.text
    assert "smallest leak" not in row.text
    metric = METRICS[course.peak.metric]
    assert is_blind(course.peak, metric)
    assert smallest_visible(course.peak, metric, found.measurements) is None


@pytest.mark.parametrize(
    ("iterations", "levels", "seen", "level", "said"),
    [
        (2, PLANTED[-1:], "none", "inconclusive", "sees no leak that is planted in these pairs"),
        (
            100,
            PLANTED[:1],  # larger ones would be tried first
            "0.1",
            "none",
            "are seen from 0.100 nats on, and the smallest such leak that this run",
        ),
    ],
)
def test_no_leakage_is_found_only_where_planted_leaks_are_seen(
    iterations: int, levels, seen: str, level: str, said: str, tmp_path: Path, monkeypatch
) -> None:
    """Gradients drowned in noise leak nothing; a critic with too few iterations sees no leak."""
    monkeypatch.setattr(measuring, "PLANTED", levels)
    monkeypatch.setattr(summarising, "is_ignorant", lambda _: False)
    drowned = {"defense": ("noise:std=1000",), "checkpoints": (0,)}
    found = run_question(telling(), tmp_path, critic_iterations=iterations, **drowned)
    told = {"iterations of the critic": "7"}  # a constant one did best, which is said elsewhere
    found = replace(
        found,
        measurements=[replace(one, details=one.details | told) for one in found.measurements],
    )
    (course,) = courses(found.measurements)
    assert course.peak.details[SMALLEST_SEEN] == seen
    (row,) = section(found, QUESTION, Path()).rows
    assert row.level == level
    assert said in row.text
    metric = METRICS[course.peak.metric]
    assert is_blind(course.peak, metric) == (seen == "none")
    least = smallest_visible(course.peak, metric, found.measurements)
    assert least is None if seen == "none" else least >= 0.1
    (finding,) = assessment(found, Path()).findings
    assert (finding.level, finding.smallest is None) == (level, seen == "none")


def test_no_leak_is_planted_where_one_is_found_or_the_critic_learned_nothing(
    answer: Answer, nothing: Answer
) -> None:
    for one in (answer, nothing):
        assert not any(SMALLEST_SEEN in each.details for each in one.measurements)


def test_an_oracle_is_asked_where_no_leak_is_found(answer: Answer, nothing: Answer) -> None:
    assert not any(ORACLE_SAW in one.details for one in answer.measurements)
    (row,) = section(nothing, QUESTION, Path()).rows
    assert "recognises batches by their gradients" in row.text
    low, high = oracle_of(nothing)
    shares = [0.81, 0.18, 0.01]  # of 0, 1 and 2 labels of the rare class in a batch of 2
    assert low <= -sum(one * math.log(one) for one in shares) <= high, "it tells these apart"


def oracle_of(answer: Answer) -> tuple[float, float]:
    """Return the interval of an oracle's figure, as a report prints it."""
    (course,) = courses(answer.measurements)
    low, high = re.search(r"\((.*) to (.*)\)", course.peak.details[ORACLE]).groups()
    return float(low), float(high)


@pytest.mark.parametrize(
    ("noise", "saw", "level", "said"),
    [
        (1000, ORACLE_BLIND, "none", "does not recognise them either"),
        (0.1, ORACLE_SEES, "inconclusive", "So the gradients leak, and the critic has not learned"),
    ],
)
def test_no_leakage_is_found_only_where_an_oracle_finds_none(
    noise: float, saw, level: str, said: str, tmp_path: Path, monkeypatch
) -> None:
    """A critic of constant scores, taken for one that learned, finds nothing in either."""
    monkeypatch.setattr(measuring, "PLANTED", PLANTED[:1])
    monkeypatch.setattr(seeing, "smallest_planted", lambda *_, **__: {SMALLEST_SEEN: "0.1"})
    monkeypatch.setattr(summarising, "is_ignorant", lambda _: False)
    drowned = {"defense": (f"noise:std={noise}",), "checkpoints": (0, 2)}
    found = run_question(telling(), tmp_path, critic_iterations=1, **drowned)
    told = {"iterations of the critic": "7"}
    found = replace(
        found,
        measurements=[replace(one, details=one.details | told) for one in found.measurements],
    )
    (course,) = courses(found.measurements)
    assert saw in course.peak.details.items()
    shown = section(found, QUESTION, Path())
    (row,) = shown.rows
    assert row.level == level
    assert row.text.startswith(f"The defense is `noise:std={noise}`. No leak is found")
    assert said in row.text
    assert "-0." not in row.text, "a minus is no hyphen"
    assert shown.untried == "", "a defense was tried"
    metric = METRICS[course.peak.metric]
    assert is_blind(course.peak, metric) == (saw == ORACLE_SEES)
    (finding,) = assessment(found, Path()).findings
    assert (finding.smallest is None) == (saw == ORACLE_SEES)


@pytest.mark.parametrize(
    ("low", "high", "saw"),
    [(0.1, 0.3, ORACLE_SEES), (-0.1, 0.1, ORACLE_BLIND), (-0.1, 0.25, ORACLE_UNKNOWN)],
)
def test_an_oracle_that_could_have_missed_a_clear_leak_recognises_nothing_for_sure(
    low: float, high: float, saw
) -> None:
    assert saw in seeing._told({4: oracle_found(low, high)}, []).items()


def oracle_found(low: float, high: float) -> dict[str, Any]:
    return {"estimate": vars(Estimate((low + high) / 2, low, high, 100)), "most": 3.5}


@pytest.mark.parametrize(
    ("steps", "refused", "saw", "says"),
    [
        ([(-0.02, 0.12), (0.07, 0.09)], [], ORACLE_SEES, "sub-epoch 1"),
        ([(-0.01, 0.06), (-0.6, 0.6)], [], ORACLE_UNKNOWN, "sub-epoch 1"),
        ([(-0.01, 0.06), (-0.02, 0.05)], [], ORACLE_BLIND, "sub-epoch 0"),
        ([(-0.01, 0.06)], ["there are 70 records"], ORACLE_UNKNOWN, "since there are 70 records"),
        ([(0.3, 0.4)], ["there are 70 records"], ORACLE_SEES, "sub-epoch 0"),
        ([(-0.3, -0.1), (-0.01, 0.02)], [], ORACLE_UNKNOWN, "worse than a guess"),
    ],
)
def test_an_oracle_is_blind_only_if_it_is_at_every_checkpoint(
    steps: list[tuple[float, float]], refused: list[str], saw, says: str
) -> None:
    told = seeing._told({at: oracle_found(*one) for at, one in enumerate(steps)}, refused)
    assert saw in told.items()
    assert says in told[ORACLE]


@pytest.mark.parametrize(
    ("seeds", "level"),
    [
        (({SMALLEST_SEEN: "0.1"}, {SMALLEST_SEEN: "0.1"}), "none"),
        (({SMALLEST_SEEN: "0.1"}, {SMALLEST_SEEN: "none"}), "inconclusive"),
        (({SMALLEST_SEEN: "0.1"}, {SMALLEST_SEEN: "0.5"}), "inconclusive"),
        (({}, dict([ORACLE_SEES])), "inconclusive"),
        ((dict([ORACLE_BLIND]), dict([ORACLE_UNKNOWN])), "inconclusive"),
        ((dict([ORACLE_BLIND]), dict([ORACLE_BLIND])), "none"),
        (({}, {"iterations of the critic": "0"}), "inconclusive"),
    ],
)
def test_one_seed_that_saw_too_little_makes_no_leakage_of_a_grid_doubtful(
    nothing: Answer, seeds, level: str
) -> None:
    (course,) = courses(nothing.measurements)
    quiet = Estimate(0.0, -0.01, 0.01, 100)
    cells = [
        SimpleNamespace(measurements=[replace(course.peak, estimate=quiet, details=about)])
        for about in seeds
    ]
    for several in (cells, cells[::-1]):
        ((_, means),) = by_knowledge(several, METRICS).items()
        assert badge(Group({}, "adaptive", (), means)).level == level


def test_without_the_records_for_an_oracle_no_leakage_is_not_said(
    tmp_path: Path, monkeypatch
) -> None:
    def refused(*_, **__):
        raise InputError("there are 70 private records")

    monkeypatch.setattr(seeing, "oracle_parts", refused)
    found = run_question(silent(), tmp_path, checkpoints=(0,))
    (course,) = courses(found.measurements)
    assert ORACLE_UNKNOWN in course.peak.details.items()
    assert level_of_peak(course.peak, course.placebo) == "inconclusive"
    (row,) = section(found, QUESTION, Path()).rows
    assert "recognises them is not known: it cannot be evaluated, since there are 70" in row.text


def test_every_figure_has_a_metric_a_step_and_an_interval(answer: Answer) -> None:
    for one in answer.measurements:
        assert one.metric in METRICS
        assert one.estimate.low <= one.estimate.value <= one.estimate.high
        if one.adversary:
            assert {"token", "estimator"} <= set(one.details)
        if isinstance(one.round, int):
            assert one.details["step"] == str(one.round)


def test_a_killed_run_goes_on_with_the_same_figures(brief: Answer, tmp_path: Path) -> None:
    class Killed(Silent):
        def step(self, what: str, done: int, of: int, note: str = "") -> None:
            if what.endswith("checkpoints") and done == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_question(telling(), tmp_path, progress=Killed(), critic_iterations=5)
    again = run_question(telling(), tmp_path, critic_iterations=5)
    assert again.measurements == brief.measurements


@pytest.mark.slow
@pytest.mark.process
def test_two_workers_give_the_same_figures(answer: Answer, tmp_path: Path) -> None:
    assert run_question(telling(), tmp_path, workers=2).measurements == answer.measurements


def test_a_training_that_was_killed_goes_on_from_its_last_state(
    brief: Answer, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("leakgauge.runs.checkpoint.SECONDS_BETWEEN", 0.0)

    class Killed(Silent):
        def step(self, what: str, done: int, of: int, note: str = "") -> None:
            if what.endswith("training") and done == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_question(telling(), tmp_path, progress=Killed(), critic_iterations=5)
    steps: list[int] = []

    class Noting(Silent):
        def step(self, what: str, done: int, of: int, note: str = "") -> None:
            if what.endswith("training"):
                steps.append(done)

    again = run_question(telling(), tmp_path, progress=Noting(), critic_iterations=5)
    assert 0 not in steps
    assert again.measurements == brief.measurements


def test_json_has_one_entry_for_each_checkpoint_and_critic(answer: Answer) -> None:
    found = json.loads(json.dumps(as_json(answer, Path()), allow_nan=False))
    assert [one["step"] for one in found["timeline"]] == [0, 2]
    for one in found["timeline"]:
        for name in ("accuracy", "information_nats", "placebo", "critic_gap", "cheap"):
            assert set(one[name]) == {"value", "low", "high"}, name
        assert (one["token"], one["estimator"]) == ("autoencoder", "infonce")
    assert found["verdict"][0]["step"] in (0, 2)
    noise = [one["noise"] for one in found["schedule"]]
    assert max(noise) == 1
    assert min(noise) >= 0.1


def test_the_report_never_calls_a_bound_the_information(answer: Answer) -> None:
    html = section(answer, QUESTION, Path()).html
    assert "held-out lower bound" in html
    assert "not a guarantee" in html
    for wrong in ("The information is", "the mutual information is", "the information of"):
        assert wrong not in html


@pytest.mark.slow
def test_the_paper_s_mine_is_in_sample_and_a_defense_has_a_curve_of_its_own(
    tmp_path: Path,
) -> None:
    settings = {"estimator": ("paper",), "defense": ("none", "noise:std=10")}
    found = run_question(telling(), tmp_path, checkpoints=(0,), **settings)
    bare, defended = courses(found.measurements)
    assert [one.title for one in bare.curves] == ["autoencoder, paper"]
    assert defended.defense == "noise:std=10"
    # what noise leaves for the critic, it leaves for the linear model
    assert bare.cheap[0].estimate.low > 0.5 > defended.cheap[0].estimate.high
    assert abs(bare.cheap_placebo[0].estimate.value) < 0.1
    for course in (bare, defended):
        assert course.curves[0].at("critic_gap_in_sample", 0) is not None
    assert len(section(found, QUESTION, Path()).rows) == 2


def test_both_tokens_play(tmp_path: Path) -> None:
    tokens = ("autoencoder", "transformer")
    found = run_question(telling(), tmp_path, checkpoints=(0,), token=tokens, critic_iterations=2)
    (course,) = courses(found.measurements)
    assert [one.token for one in course.curves] == list(tokens)
    assert len(as_json(found, Path())["timeline"]) == 2


def test_pairs_of_the_training_are_measured_too(tmp_path: Path) -> None:
    settings = {"pairs": "stream", "iterations": 60, "critic_iterations": 30}
    found = run_question(telling(), tmp_path / "a", checkpoints=(0, 2), **settings)
    assert found.missing == ()
    assert any("a stream has no pairs" in note for note in found.run.notes)
    assert curve_of(found).steps == [2]
    assert run_question(telling(), tmp_path / "a", checkpoints=(0, 2), **settings) == found


def test_a_critic_of_the_whole_training_judges_each_checkpoint(tmp_path: Path, monkeypatch) -> None:
    """Also the one before the training, with 200 batches for the paper's method."""
    paper = CriticSettings.paper

    def brief(token: str, *, pairs: int) -> CriticSettings:
        return replace(paper(token, pairs=pairs), iterations=20)

    monkeypatch.setattr(CriticSettings, "paper", brief)
    settings = {
        "pairs": "stream-to-checkpoint",
        "iterations": 40,
        "critic_iterations": 5,
        "estimator": ("paper", "infonce"),
    }
    found = run_question(telling(), tmp_path / "a", checkpoints=(0, 2), **settings)
    assert found.missing == ()
    by_method = {one.estimator: one for one in courses(found.measurements)[0].curves}
    assert by_method["paper"].steps == by_method["infonce"].steps == [0, 2]
    assert by_method["paper"].at("critic_gap", 0).n == 200
    # the critic is one: it learned on the same pairs for both checkpoints
    in_sample = [by_method["paper"].at("critic_gap_in_sample", step).value for step in (0, 2)]
    assert in_sample[0] == in_sample[1]
    assert by_method["paper"].at("critic_gap", 0) != by_method["paper"].at("critic_gap", 2)


def test_a_critic_of_the_whole_training_compares_pairs_of_any_two_steps() -> None:
    """Neighbours in time hide what the training's drift tells about a pair."""
    steps = torch.arange(100.0)[:, None]
    at = measuring.ModelCheckpoint(1, "none", {}, {"features": steps, "layer one": steps})
    few = FixedPairs(pairs_of(at.pairs))
    spec = TimelineSpec(**SMALL)
    stream = measuring._taught_by_the_stream(PairSplit(few, few, few), at, spec, "paper").fitting
    (groups,) = stream.groups(100, 100, torch.Generator())
    assert sorted(groups[0].features[:, 0].tolist()) == steps[:, 0].tolist()
    assert (groups[0].features == groups[0].gradients["one"]).all()
    assert groups[0].features[:, 0].diff().abs().median() > 10  # in order it is 1


def test_pairs_of_the_whole_training_have_the_sketches_of_a_checkpoint(tmp_path: Path) -> None:
    """With weights that do not move, a step's pair is the mean of its records' rows."""
    still = {"pairs": "stream-to-checkpoint", "width": 4, "lr": 1e-30, "optimizer": "sgd"}
    spec = TimelineSpec(**{**SMALL, **still, "checkpoints": (1,), "iterations": 3})
    prepared = prepare(spec, telling())
    folder = WorkFolder(tmp_path)
    folder.guard(prepared.run)
    (at,) = trained(prepared, "none", folder, Silent())
    task, params = at.task(prepared.task)
    every = prepared.rows(prepared.private)
    sketches = Sketches(spec.width, derive(spec.seed, "timeline", "pairs"))
    features = sketches("features", record_features(task, params, every.x))
    batches = list(_batches(spec, len(every), 1))
    wanted = torch.stack([features[batch].mean(0) for batch in batches])
    torch.testing.assert_close(at.pairs["features"], wanted)
    factoring = Factoring.start(task, params, every.x[:2], every.y[:2], layers=prepared.layers)
    for name, one in factoring(params, every.x, every.y).items():
        rows = torch.cat([sketches(name, chunk) for chunk in one.chunks()])
        wanted = torch.stack([rows[batch].mean(0) for batch in batches])
        torch.testing.assert_close(at.pairs[f"layer {name}"], wanted)


def test_images_are_attacked_beside_it(tmp_path: Path) -> None:
    source = pictures(400, side=16)
    found = run_question(
        source, tmp_path, task=None, data="mine", label="y", net="lenet-relu", images=2,
        attack_iterations=3, critic_iterations=10, checkpoints=(0, 1), width=64,
    )  # fmt: skip
    (course,) = courses(found.measurements)
    assert {"psnr", "ssim", "mse"} <= set(course.attack)
    assert course.attack["psnr"][1].estimate.n == 2
    assert found.run.settings["features"] == "6"
    assert found.run.settings["layers"] == ["0", "2", "4"]
    assert found.missing == ()


def test_a_table_says_why_no_attack_is_played(answer: Answer) -> None:
    said = "no attack runs: it rebuilds images, and the records are not images"
    assert said in answer.run.notes
    assert answer.missing == ()


@pytest.mark.parametrize("users", [None, 150])
def test_no_record_and_no_user_is_on_two_sides(users: int | None) -> None:
    source = telling(users=users)
    prepared = prepare(TimelineSpec(**SMALL), source)
    sides = [set(prepared.private.tolist()), set(prepared.test.tolist())]
    assert not sides[0] & sides[1]
    if users is not None:
        owners = source.dataset.users
        one, other = (set(owners[rows].tolist()) for rows in (prepared.private, prepared.test))
        assert not one & other


def test_bad_input_gets_one_clear_line(tmp_path: Path) -> None:
    source = telling()
    cases = (
        (source, {"checkpoints": (5, 1)}, "checkpoints are 5, 1; expected them ascending"),
        (source, {"checkpoints": (1, 1)}, "checkpoints are 1, 1; expected them ascending"),
        (source, {"checkpoints": (-1, 1)}, "--checkpoints is -1; expected a whole number of 0"),
        (source, {"checkpoints": ()}, "checkpoints is empty"),
        (source, {"pairs": "stream", "checkpoints": (0,)}, "before the training there are none"),
        (source, {"layers": ("hed",)}, "no layer 'hed' to watch"),
        (source, {"features": "bodi"}, "no module 'bodi'"),
        (source, {"token": ("autoencode",)}, "autoencode.*did you mean 'autoencoder'"),
        (source, {"estimator": ("infonce", "infonce")}, "estimator names one twice"),
        (source, {"attack": "agik"}, "'agik' is not known; did you mean 'agic'"),
        (source, {"optimizer": "adm"}, "did you mean 'adam'"),
        (telling(count=40), {}, "40 records leave 32 to train on.*bring more records"),
    )
    for given, settings, wanted in cases:
        with pytest.raises(InputError, match=wanted) as caught:
            run_question(given, tmp_path, **settings)
        assert "\n" not in str(caught.value)


def test_a_batch_of_one_says_what_it_is_about(tmp_path: Path) -> None:
    found = run_question(telling(), tmp_path, batch_size=1, checkpoints=(0,), critic_iterations=5)
    assert any("batches have one record" in note for note in found.run.notes)


def test_the_model_stays_unchanged(tmp_path: Path) -> None:
    source = telling()
    before = {name: leaf.clone() for name, leaf in source.task.model.state_dict().items()}
    run_question(source, tmp_path, checkpoints=(1,), critic_iterations=2)
    assert source.task.model.training
    after = source.task.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_table_of_one_s_own_plays(tmp_path: Path) -> None:
    frame = people(500)
    found = run_question(
        table_source(frame), tmp_path, task=None, data="mine", label="income", checkpoints=(0,),
        critic_iterations=5, hidden=(8,),
    )  # fmt: skip
    assert curve_of(found).steps == [0]
    assert found.run.settings["layers"] == ["0", "2"]


def test_the_rate_decays_as_steplr_does(tmp_path: Path) -> None:
    """SGD by hand against the room's: two sub-epochs of one rate, then a tenth of it."""
    from leakgauge.tokens.run.training import DecayingOptimizer

    spec = replace(TimelineSpec(**SMALL), optimizer="sgd", lr=1.0, decay=0.1, decay_every=2)
    mover, leaf = DecayingOptimizer(spec), torch.zeros(1)
    for step in (1, 2, 3):
        mover.at(step)({"w": leaf})({"w": torch.ones(1)})
    assert leaf.item() == pytest.approx(-2.1)
    adam = DecayingOptimizer(replace(spec, optimizer="adam"))
    own = torch.zeros(1, requires_grad=True)
    theirs = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.Adam([theirs], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)
    for step in (1, 2, 3, 4, 5):
        gradient = torch.tensor([float(step)])
        adam.at(step)({"w": own})({"w": gradient.clone()})
        theirs.grad = gradient.clone()
        optimizer.step()
        scheduler.step()
    torch.testing.assert_close(own, theirs)


def test_the_command_prints_the_timeline_as_json_and_refuses_in_one_line(tmp_path: Path) -> None:
    small = [
        f"--set=timeline.{one}" for one in ("checkpoints=0,1", "critic_iterations=2", "width=8")
    ]
    command = ("audit", "randhie", "--ask", "timeline", "--workers", "1", "--hidden", "8", *small)
    ended = run(*command, "--batch-size", "2", "--json", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)["timeline"]["timeline"]
    assert [one["step"] for one in found] == [0, 1]
    refused = run(*command, "--set", "timeline.layers=layer0", cwd=tmp_path)
    assert refused.returncode == 2
    assert "no layer 'layer0' to watch" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1

"""Fine-tuned and federated models: who is a member of what, and what an attacker sees."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from leakgauge.core.checks import InputError
from leakgauge.core.rng import derive
from leakgauge.data.source import Source
from leakgauge.gradients import params_of
from leakgauge.membership.checking import check
from leakgauge.membership.run.answering import answer
from leakgauge.membership.run.federated import federated_targets
from leakgauge.membership.run.preparing import prepare
from leakgauge.membership.run.target_model import trained_target
from leakgauge.membership.run.training import MembershipRecipe
from leakgauge.membership.spec import MembershipSpec
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.runs.question import Silent
from leakgauge.runs.sources import task_source
from leakgauge.runs.work import WorkFolder
from leakgauge.training.federation import federation
from leakgauge.training.participant import Participant
from leakgauge.training.protocol import Protocol
from leakgauge.training.state import State
from leakgauge.training.strategies import GradientAscent, Isolate, Together
from support.worlds import network, noise

TUNED = {"fine_tune": 0.4, "rounds": 5, "batch_size": 16, "lr": 0.003}
FEDERATED = {
    "participants": 3, "rounds": 4, "batch_size": 16, "lr": 0.2, "optimizer": "sgd",
    "observed": (2, 4), "targets": 20,
}  # fmt: skip


@pytest.fixture(scope="module")
def source() -> Source:
    return task_source(network(seed=0), noise(600, seed=0))


def spec_of(**settings) -> MembershipSpec:
    return MembershipSpec(task="mine:build", **{"adversary": ("loss",), **settings})


def auroc(source: Source, folder: Path, **settings) -> float:
    folder.mkdir(parents=True, exist_ok=True)
    said = answer(prepare(spec_of(**settings), source), WorkFolder(folder), Silent(), workers=1)
    return next(
        one.estimate.value
        for one in said.measurements
        if (one.metric, one.round) == ("auroc", ACCUMULATED)
    )


@pytest.mark.parametrize("apart", ["members", "first", "second", "parts"])
def test_what_is_told_apart_is_on_the_right_sides(source: Source, apart: str) -> None:
    prepared = prepare(spec_of(**TUNED, apart=apart), source)
    first, second = (set(rows.tolist()) for rows in prepared.roles.training)
    outside = set(prepared.roles.outside.tolist())
    assert len(first) == 90
    assert len(second) == 60
    assert not first & second
    assert not (first | second) & outside
    (split,) = prepared.roles.splits
    yes, no = set(split.members.tolist()), set(split.non_members.tolist())
    sides = {
        "members": (first | second, outside),
        "first": (first, outside),
        "second": (second, outside),
        "parts": (first, second),
    }[apart]
    assert yes <= sides[0]
    assert no <= sides[1]


def test_the_second_training_goes_on_from_the_first(source: Source, tmp_path: Path) -> None:
    spec = spec_of(**TUNED, snapshots=2)
    prepared = prepare(spec, source)
    recipe = MembershipRecipe(prepared.task, spec)
    folder = WorkFolder(tmp_path)
    world = trained_target(prepared.data, prepared.roles, recipe, 0, folder, Silent())
    data = [prepared.data.rows(rows) for rows in prepared.roles.training]
    before = recipe.last(data[0], "target")
    *_, after = recipe.epochs(data[1], "target 1", start=before)
    for snapshot, wanted in zip(world.snapshots, (before, after), strict=True):
        found = params_of(snapshot.model)
        assert all(torch.equal(found[name], leaf) for name, leaf in wanted.items())


def test_two_snapshots_tell_the_parts_apart_and_one_does_not_as_well(
    source: Source, tmp_path: Path
) -> None:
    settings = {**TUNED, "apart": "parts", "rounds": 25, "adversary": ("label-loss:epochs=8",)}
    one = auroc(source, tmp_path / "one", **settings)
    two = auroc(source, tmp_path / "two", **settings, snapshots=2)
    assert two > max(0.85, one + 0.02)


def worlds(source: Source, folder: Path, **settings):
    spec = spec_of(**{**FEDERATED, **settings})
    prepared = prepare(spec, source)
    recipe = MembershipRecipe(prepared.task, spec)
    made = federated_targets(recipe, prepared.data, prepared.roles, WorkFolder(folder), Silent())
    return prepared, made


def played(prepared, strategy) -> list:
    protocol = Protocol(rounds=4, lr=0.2, batch_size=16)
    people = [Participant(prepared.data.rows(rows)) for rows in prepared.roles.training]
    start, seed = State.of(prepared.task.model), derive(0, "membership", "federation")
    return list(federation(prepared.task, start, people, protocol, strategy=strategy, seed=seed))


def same(task, tensors) -> bool:
    found = params_of(task.model)
    return all(torch.equal(found[name], tensors[name]) for name in found)


def test_a_global_attacker_sees_each_upload(source: Source, tmp_path: Path) -> None:
    prepared, made = worlds(source, tmp_path)
    rounds = played(prepared, Together(()))
    assert len(made) == 3
    for number, world in enumerate(made):
        for snapshot, when in zip(world.snapshots, (2, 4), strict=True):
            assert same(snapshot, rounds[when - 1].uploaded(number))
        assert set(world.targets.members.tolist()) <= set(prepared.roles.training[number].tolist())


def test_a_local_attacker_sees_averages_and_asks_about_the_others(
    source: Source, tmp_path: Path
) -> None:
    prepared, (world,) = worlds(source, tmp_path, attacker="local")
    rounds = played(prepared, Together(()))
    for snapshot, when in zip(world.snapshots, (2, 4), strict=True):
        assert same(snapshot, rounds[when - 1].state.shared)
    own = set(prepared.roles.training[0].tolist())
    assert not own & set(world.targets.rows.tolist())


def test_an_active_attacker_isolates_and_raises_what_it_knows_and_judges(
    source: Source, tmp_path: Path
) -> None:
    prepared, made = worlds(source, tmp_path, strategy="both", ascent_rate=0.01)
    split = prepared.roles.splits[1]
    parts = (split.known_members, split.validation_members, split.target_members)
    parts += (split.known_non_members, split.validation_non_members, split.target_non_members)
    raised = prepared.data.rows(torch.cat(parts))
    strategy = Together((Isolate(1), GradientAscent(raised.x, raised.y, 0.01, "log")))
    assert same(made[1].snapshots[-1], played(prepared, strategy)[-1].uploaded(1))


def test_participants_may_pass_over_their_records_several_times(
    source: Source, tmp_path: Path
) -> None:
    """Members that a model saw more often are recognised better."""
    once, often = (
        auroc(source, tmp_path / str(epochs), **FEDERATED, local_epochs=epochs) for epochs in (1, 5)
    )
    assert often > once


def test_what_was_observed_is_kept(source: Source, tmp_path: Path, monkeypatch) -> None:
    first = auroc(source, tmp_path, **FEDERATED)
    monkeypatch.setattr(
        "leakgauge.membership.run.federated.federation", lambda *_, **__: pytest.fail("trained")
    )
    assert auroc(source, tmp_path, **FEDERATED) == first


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"strategy": "isolate"}, "add --set membership.participants=4"),
        ({"local_epochs": 2}, "add --set membership.participants=4"),
        ({"participants": 3, "attacker": "local", "strategy": "both"}, "a local attacker cannot"),
        ({"participants": 3, "observed": (500,)}, "observed names round 500 of 100"),
        ({"participants": 3, "adversary": ("shadow",)}, "attack 'shadow' trains its own models"),
        ({"apart": "first"}, "add --set membership.fine_tune=0.4"),
        ({"fine_tune": 0.4, "participants": 2}, "fine_tune is about a central training"),
        ({"fine_tune": 1.5}, "expected a share below 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, says: str) -> None:
    with pytest.raises(InputError, match=says):
        check(spec_of(**settings))


def test_the_rate_drops_and_the_best_epoch_is_kept(source: Source, tmp_path: Path) -> None:
    plain = {"rounds": 6, "batch_size": 16, "lr": 0.5, "optimizer": "sgd"}
    spec = spec_of(**plain, drops=(2, 4))
    prepared = prepare(spec, source)
    data = prepared.data.rows(prepared.roles.members)
    epochs = [
        params_of(prepared.task.model),
        *MembershipRecipe(prepared.task, spec).epochs(data, "target"),
    ]
    moved = [
        sum((after[name] - before[name]).abs().sum() for name in after)
        for before, after in pairwise(epochs)
    ]
    assert moved[1] > 4 * moved[2] > 16 * moved[4]
    best = spec_of(**plain, best_epoch=True)
    recipe = MembershipRecipe(prepared.task, best)
    world = trained_target(prepared.data, prepared.roles, recipe, 0, WorkFolder(tmp_path), Silent())
    held = prepared.data.rows(world.validation.others)

    def right(params) -> int:
        outputs = torch.func.functional_call(prepared.task.model, dict(params), (held.x,))
        return int((outputs.argmax(1) == held.y).sum())

    seen = [right(params) for params in recipe.epochs(data, "target")]
    assert right(world.params) == max(seen)

"""Stages from settings and data: adversaries, records and refusals."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.data import Roles, Source
from leakgauge.data.encoding import encode_pictures, make_picture_table
from leakgauge.data.roles import resolve_roles
from leakgauge.defenses import LearnPerturb, parse_defense
from leakgauge.inference import Matching, PcaEncoder, Plda
from leakgauge.inference.checking import GameAttacks, attacks_for, check, defenses_of
from leakgauge.inference.report.threat_model import unknown
from leakgauge.inference.run import attack_round, audit, measure, trajectory
from leakgauge.inference.run.preparing import InferencePrepared, prepare
from leakgauge.inference.run.splitting import split_of
from leakgauge.inference.spec import InferenceSpec
from leakgauge.results.measurements import Estimate
from leakgauge.runs.records import records_of
from support.defenses import gaussian

SMALL = {"batch_size": 6, "rounds": 1, "trials": 200}


def people(n: int = 2400, persons: int = 120) -> pd.DataFrame:
    """Three features have a place for each person; a fourth goes with the secret.

    Most labels are the same, so that the records of a batch push the model the same way.
    """
    rng = stream(0, "people")
    whose = np.arange(n) % persons
    sick = rng.integers(2, size=n)
    place = rng.normal(scale=3.0, size=(persons, 3))[whose] + rng.normal(size=(n, 3))
    return pd.DataFrame(
        {
            **{f"a{i}": place[:, i] for i in range(3)},
            "b": 3 * sick + rng.normal(size=n),
            "sick": np.where(sick == 1, "yes", "no"),
            "label": np.where(rng.random(n) < 0.9, "high", "low"),
            "who": whose,
        }
    )


def source(frame: pd.DataFrame, pixels=None) -> Source:
    return Source("people", frame, pixels, None, "f" * 64)


ROLES = {"label": "label", "secret": "sick", "group": "who"}


def spec(*asks: str, adversaries: tuple[str, ...] = (), **more) -> InferenceSpec:
    settings = {**ROLES, **SMALL, "shadow": 600, **more}
    return InferenceSpec(ask=asks, adversary=adversaries, **settings)


def ready(data: Source, settings: InferenceSpec) -> InferencePrepared:
    check(settings)
    return prepare(settings, data)


def score_of(prepared: InferencePrepared) -> Estimate:
    (stage,) = prepared.stages
    one = next(r for r in audit(stage) if (r.metric, r.round) == ("auroc", 1))
    return one.estimate


def names(playing: GameAttacks) -> tuple[list[str], list[str]]:
    return [attack.name for attack in playing.attacks], list(playing.panel)


def test_each_game_has_the_panel_or_those_of_the_named_that_can_play_it() -> None:
    asked = spec("property", "attribute", "user", rounds=2)
    panel = ["crossed-forest", "energies", "discriminant"]
    noisy = parse_defense("dpsgd:clip=1,noise=0.1", batch_size=6)
    assert names(attacks_for(asked, "property")) == (panel, panel)
    assert names(attacks_for(asked, "attribute", noisy)) == ([*panel, "joint"],) * 2
    assert names(attacks_for(asked, "user")) == (["plda"], [])
    named = spec("property", "attribute", adversaries=("energies", "matching"))
    assert names(attacks_for(named, "property")) == (["energies"], [])
    assert names(attacks_for(named, "attribute")) == (["energies", "matching"], [])
    both = spec("attribute", adversaries=("matching", "panel", "energies", "forest"))
    assert names(attacks_for(both, "attribute")) == (["matching", *panel, "forest"], panel)
    assert prepare(asked, source(people())).spec.adversary == ("panel",)


def test_with_too_few_shadow_users_the_papers_adversary_plays_alone() -> None:
    few = people(2400, persons=40)
    few["sick"] = np.where(few["who"] < 16, "yes", "no")  # a quarter of 16 users is public
    prepared = ready(source(few), spec("property", secret="sick"))
    (stage,) = prepared.stages
    assert ([attack.name for attack in stage.attacks], stage.panel) == (["forest"], ())
    assert any("so forest runs alone" in note for note in prepared.run.notes)
    assert score_of(prepared).n == 200


def test_one_round_or_fresh_batches_leave_nothing_for_joint_to_add() -> None:
    noisy = parse_defense("dpsgd:clip=1,noise=0.1", batch_size=6)
    for settings in ({"rounds": 1}, {"rounds": 3, "batches": "fresh"}):
        assert "joint" not in names(attacks_for(spec("property", **settings), "property", noisy))[0]


@pytest.mark.parametrize(
    ("asks", "adversaries", "says"),
    [
        (
            ("user",),
            ("forest",),
            "none of the adversaries forest supports 'user'; also name one of panel, encoder",
        ),
        (("property",), ("matching",), "none of the adversaries matching supports 'property'"),
        (("property", "user"), ("forest",), "none of the adversaries forest supports 'user'"),
        (("proportion",), ("discriminant",), "supports 'proportion'"),
        (("property",), ("forest", "plda"), "the adversary 'plda' supports none of the games"),
    ],
)
def test_an_adversary_without_a_game_is_refused(asks, adversaries, says) -> None:
    with pytest.raises(InputError, match=says):
        check(spec(*asks, adversaries=adversaries))


def test_candidates_have_no_prior_of_their_own() -> None:
    with pytest.raises(InputError, match="take --prior uniform"):
        check(spec("property", "user", prior="empirical"))
    with pytest.raises(InputError, match="no prior of shares; take --prior uniform"):
        check(spec("proportion", prior="empirical"))
    check(spec("property", prior="empirical"))


def test_user_inference_and_others_share_persons_that_never_overlap() -> None:
    prepared = ready(source(people()), spec("property", "user"))
    about, user = prepared.stages
    assert (about.secret, user.secret) == ("sick", "who")
    assert prepared.run.data["games"]["user"] == {
        "secret": "who",
        "values": [f"candidate {number}" for number in range(1, 6)],
    }
    for stage in prepared.stages:
        private, public, test = (
            set(part.users.tolist()) for part in (stage.private, stage.public, stage.test)
        )
        assert not private & public
        assert not private & test
        assert not public & test
    records = audit(user)
    score = next(r for r in records if (r.metric, r.round) == ("auroc", 1))
    assert score.estimate.low > 0.6
    assert score.adversary == "plda"


def test_users_with_few_records_are_left_out_before_the_split() -> None:
    frame = people(2400, persons=60)
    few = frame["who"].isin(range(10))
    frame = pd.concat([frame[~few], frame[few].groupby("who").head(11)])  # one less than 2 x 6
    asked = spec("property", "user", private_users=15, shadow_users=20)
    prepared = ready(source(frame), asked)
    names = frame["who"].unique()  # users have codes by their first row
    for stage in prepared.stages:
        parts = (stage.private, stage.public, stage.test)
        sides = [set(names[part.users.unique()].tolist()) for part in parts]
        assert [len(side) for side in sides] == [15, 20, 15]
        assert set().union(*sides) == set(range(10, 60))
    notes = "\n".join(prepared.run.notes)
    assert "10 of 60 users have fewer than 12 records (two batches) and take no part" in notes
    assert "15 are trained on, 20 are the adversary's, 15 test" in notes
    assert "15 private users are fewer than the 40 that disjoint groups need" in notes
    assert prepared.run.data["blocks"]["user"] == 1
    many = ready(source(frame), replace(asked, private_users=100, shadow_users=200))
    assert "13 are trained on, 26 are the adversary's, 11 test" in "\n".join(many.run.notes)
    assert "users are too few for 100 private and 200 shadow users" in "\n".join(many.run.notes)


def test_with_too_few_shadow_users_another_adversary_plays() -> None:
    few = source(people(2400, persons=60))
    for count, name in ((14, "pca-encoder"), (15, "plda")):
        prepared = ready(few, spec("user", shadow_users=count))
        (stage,) = prepared.stages
        assert [attack.name for attack in stage.attacks] == [name]
        said = any("pca-encoder replaces it" in note for note in prepared.run.notes)
        assert said == (count < 15)
    with pytest.raises(InputError, match="3 folds of the shadow users need 15"):
        ready(few, spec("user", adversaries=("plda",), shadow_users=14))


@pytest.mark.calibration
@pytest.mark.parametrize("users", [0, pytest.param(15, marks=pytest.mark.slow)])
def test_records_dealt_to_persons_at_random_name_nobody(users: int) -> None:
    """All private persons, in blocks, and the few of the paper, who leave no blocks."""
    frame = people()
    score = score_of(ready(source(frame), spec("user", private_users=users)))
    assert score.low > 0.6
    frame["who"] = stream(1, "shuffle").permutation(frame["who"])
    score = score_of(ready(source(frame), spec("user", private_users=users)))
    assert score.low <= 0.5 <= score.high


def test_user_inference_without_persons_is_refused() -> None:
    frame = people().drop(columns="who")
    with pytest.raises(InputError, match="--group COL"):
        prepare(spec("user", group=None), source(frame))


def test_persons_with_few_records_are_noted() -> None:
    frame = people()
    few = pd.concat([frame[frame.who >= 60], frame[frame.who < 60].groupby("who").head(5)])
    prepared = ready(source(few), spec("user"))
    assert any("fewer than 12 records" in note for note in prepared.run.notes)


def test_private_records_are_capped_at_random_and_the_other_parts_stay() -> None:
    data = source(people())
    whole = ready(data, spec("property", group=None, prior="empirical"))
    asked = spec("property", group=None, prior="empirical", private=500)
    fewer = ready(data, asked)
    (before,), (after,) = whole.stages, fewer.stages
    assert (len(after.private), fewer.run.data["private"]) == (500, 500)
    assert fewer.run.settings["private"] == 500
    assert "private" not in whole.run.settings
    for part in ("public", "test"):
        assert torch.equal(getattr(before, part).y, getattr(after, part).y)
    assert after.game.prior == pytest.approx(
        [float((after.private.secrets["sick"] == value).double().mean()) for value in (0, 1)]
    )
    again = ready(data, asked).stages[0].private
    other = ready(data, replace(asked, seed=1)).stages[0].private
    assert torch.equal(again.y, after.private.y)
    assert not torch.equal(other.y, after.private.y)


def test_records_are_split_where_users_are_not_to_be_kept_together() -> None:
    data = source(people())
    prepared = ready(data, spec("property", by_user=False))
    (stage,) = prepared.stages
    assert stage.private.users is None
    whole, alone = (
        split_of(records_of(one, data, hidden=one.hidden, secret=one.secret), one)
        for one in (spec("property"), spec("property", by_user=False))
    )
    whose = data.frame["who"].to_numpy()
    assert not set(whose[whole.private]) & set(whose[whole.public])
    assert set(whose[alone.private]) & set(whose[alone.public])
    assert not set(alone.private.tolist()) & set(alone.public.tolist())
    assert "records were split" in unknown(prepared.run)[0]
    with pytest.raises(InputError, match="user inference splits whole users"):
        check(spec("user", by_user=False))


def test_shadow_records_are_divided_equally_over_the_values() -> None:
    (stage,) = ready(source(people()), spec("property", group=None, shadow=400)).stages
    assert torch.bincount(stage.public.secrets["sick"]).tolist() == [200, 200]


def test_too_few_private_records_are_refused() -> None:
    with pytest.raises(InputError, match="of the 12 private records; needed are 8: raise --priv"):
        ready(source(people()), spec("property", group=None, private=12))


def test_games_have_the_papers_batches_and_trials_where_none_are_named() -> None:
    """Section 5.1.4: batches of 16, of proportions 128, of users 8; 1,000 trials of users."""
    data = source(people(20_000, persons=400))
    bare = spec("property", "proportion", "user", shadow=2000)
    prepared = ready(data, replace(bare, batch_size=None, trials=None, rounds=1))
    found = {one.game.name: (one.batch_size, *one.trials.rows.shape) for one in prepared.stages}
    assert found == {
        "property": (16, 5000, 16), "proportion": (128, 5000, 128), "user": (8, 1000, 8),
    }  # fmt: skip
    assert prepared.run.settings["trials"] == {"property": 5000, "proportion": 5000, "user": 1000}
    named = ready(data, bare)
    assert {one.batch_size for one in named.stages} == {SMALL["batch_size"]}
    assert named.run.settings["batch_size"] == SMALL["batch_size"]


def test_a_secret_that_a_split_of_persons_leaves_rare_is_refused() -> None:
    split = ready(source(people()), spec("user")).stages[0]
    frame, tested = people(), int(split.test.users[0])
    frame["sick"] = np.where(frame.who == tested, "yes", "no")
    with pytest.raises(InputError, match="'yes' has 0 private and 0 public records where users"):
        prepare(spec("property", "user"), source(frame))


def test_a_run_about_persons_says_how_they_were_split() -> None:
    run = ready(source(people()), spec("user")).run
    assert any("--shadow is not used" in note for note in run.notes)


def test_matching_plays_numbers_that_were_cut_into_ranges() -> None:
    asked = spec("attribute", adversaries=("matching",), secret="b", bins={"b": 3})
    assert score_of(ready(source(people()), asked)).value > 0.95


def test_fresh_batches_of_persons_are_not_weighted() -> None:
    """Held-out batches of two rounds would be of different persons; a trial keeps its own."""
    stage = ready(source(people()), spec("user", batches="fresh")).stages[0]
    stage = replace(stage, attacks=(Plda(components=8, batches=200),))
    assert attack_round(stage, 1, next(trajectory(stage))).held_out == {}


@pytest.mark.slow
def test_matching_runs_with_others_on_the_same_gradients() -> None:
    """Noise that hides the attribute from a forest does not hide it from who knows the rest."""
    defenses = ("none", "noise:std=0.05")
    asked = spec("attribute", adversaries=("forest", "matching"), defense=defenses)
    bare, noisy = ready(source(people()), asked).stages
    for stage, knowledge in ((bare, "static"), (noisy, "adaptive")):
        params = next(trajectory(stage))
        said = attack_round(stage, 1, params).log_posterior[f"{knowledge} matching"]
        assert (said.argmax(axis=1) == stage.trials.secret.numpy()).mean() > 0.9


def test_matching_does_not_depend_on_chunks() -> None:
    stages = [
        replace(stage, max_bytes=size, attacks=(Matching(20),))
        for stage in ready(
            source(people()), spec("attribute", adversaries=("matching",), trials=80)
        ).stages
        for size in (2**27, 2**15)
    ]
    said = [
        attack_round(stage, 1, next(trajectory(stage))).log_posterior["static matching"]
        for stage in stages
    ]
    assert (said[0].argmax(axis=1) == said[1].argmax(axis=1)).all()


def test_rounds_of_an_encoder_that_calibrates_itself_are_weighted() -> None:
    prepared = ready(source(people()), spec("user"))
    stage = replace(prepared.stages[0], attacks=(PcaEncoder(epochs=3, temperature=None),))
    params = next(trajectory(stage))
    played = attack_round(stage, 1, params)
    found = measure(stage, [played], params, dataset="d", label="l")
    assert "stacked" in {record.round for record in found}


def test_guarantees_stand_in_the_run_for_each_game_and_defense() -> None:
    asked = spec("property", defense=("none", "dpsgd:clip=1,noise=2", "sign"))
    run = ready(source(people()), asked).run
    assert set(run.guarantees["property"]) == {"none", "dpsgd:clip=1,noise=2", "sign"}
    assert run.guarantees["property"]["dpsgd:clip=1,noise=2"]["epsilon"]["noise_multiplier"] == (
        pytest.approx(2 * 6**0.5)
    )
    assert run.guarantees["property"]["sign"]["epsilon"] is None


def test_a_defense_alone_stands_without_none_where_asked() -> None:
    assert [d.name for d in defenses_of(spec("property", defense=("sign",)), "property")] == [
        "sign"
    ]
    assert [d.name for d in defenses_of(spec("property"), "property")] == ["none"]
    both = spec("property", defense=("none", "sign", "sign"))
    assert [d.name for d in defenses_of(both, "property")] == ["none", "sign"]


def test_a_perturbation_aims_at_another_person_where_persons_are_asked_for() -> None:
    asked = spec("property", "user", defense=("none", "perturb"))
    stages = ready(source(people()), asked).stages
    targeted = {
        (stage.game.name, stage.defense.name): stage.defense.learn.pgd.targeted
        for stage in stages
        if isinstance(stage.defense.learn, LearnPerturb)
    }
    name = "perturb:gamma=0.005,alpha=0.002,steps=5"
    assert targeted == {("property", name): False, ("user", f"{name},targeted=1"): True}
    perturbed = stages[-1]
    said = attack_round(perturbed, 1, next(trajectory(perturbed))).log_posterior
    assert set(said) == {"static plda", "adaptive plda"}


def pictures(n: int = 600) -> tuple[pd.DataFrame, np.ndarray]:
    """Brighter where the secret is yes."""
    rng = stream(0, "pictures")
    secret, label = rng.integers(2, size=n), rng.integers(2, size=n)
    pixels = rng.integers(0, 120, size=(n, 3, 16, 16)) + 60 * secret[:, None, None, None]
    frame = pd.DataFrame({"smile": label, "glasses": secret, "age": rng.integers(90, size=n)})
    return frame, pixels.astype(np.uint8)


PICTURES = {"label": "smile", "secret": "glasses", "group": None, "shadow": 200}


def test_pictures_are_played_with_a_cnn_and_other_columns_are_no_features() -> None:
    frame, pixels = pictures()
    prepared = ready(
        source(frame, pixels), spec("property", adversaries=("energies:batches=100",), **PICTURES)
    )
    stage = prepared.stages[0]
    assert stage.private.x.shape[1:] == (3, 16, 16)
    assert "Conv2d" in repr(stage.task.model)
    mean = stage.private.x.mean(dim=(0, 2, 3))
    torch.testing.assert_close(mean, torch.zeros(3), atol=1e-4, rtol=0)
    assert score_of(prepared).low > 0.6


@pytest.mark.parametrize(
    "roles",
    [
        Roles("smiles", ("glasses",)),
        Roles("smile", ("glases",)),
        Roles("smile", ("glasses",), group="persn"),
        Roles("smile", ("glasses",), drop=("agee",)),
    ],
)
def test_a_column_that_is_not_in_the_table_of_pictures_is_refused(roles: Roles) -> None:
    with pytest.raises(InputError, match=r"the images have no column '.*'; (did|known)") as told:
        make_picture_table(pictures(20)[0], roles)
    assert "leakgauge" not in str(told.value)


def test_pictures_of_rows_that_are_left_out_leave_with_them() -> None:
    frame, pixels = pictures(50)
    holes = frame.astype({"glasses": "Int64"})
    holes.loc[[0, 7], "glasses"] = pd.NA
    table, rows = make_picture_table(holes, Roles("smile", ("glasses",)), drop_missing=True)
    assert rows.tolist() == [i for i in range(50) if i not in (0, 7)]
    data = encode_pictures(table, pixels, rows, fit_on=torch.arange(10))
    bright = torch.from_numpy(pixels[rows].astype(np.float64).mean(axis=(1, 2, 3)))
    order = data.x.mean(dim=(1, 2, 3)).double()
    assert float(torch.corrcoef(torch.stack([bright, order]))[0, 1]) > 0.99
    assert data.y.tolist() == frame["smile"].drop([0, 7]).tolist()


def test_pictures_have_no_attribute() -> None:
    frame, pixels = pictures()
    with pytest.raises(InputError, match="no attribute is among them"):
        prepare(spec("attribute", **PICTURES), source(frame, pixels))
    with pytest.raises(InputError, match="--hidden is about the network for tables"):
        prepare(spec("property", hidden=(5,), **PICTURES), source(frame, pixels))


def test_an_attribute_under_noise_of_the_adversarys_own_making() -> None:
    """The candidates' gradients are made without the noise: only the client's is in the way."""
    asked = spec("attribute", adversaries=("matching",), defense=("noise:std=0.5",))
    (stage,) = ready(source(people()), asked).stages
    assert stage.defense == gaussian(0.5)
    fitted = attack_round(stage, 1, next(trajectory(stage)))
    assert "noise 0.5" in fitted.details["adaptive matching"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Roles("label", ("sex",), "who", ("row",))),
        ({"label": "sex"}, Roles("sex", ("age",), "who", ("row",), {"age": 3})),
        (
            {"secret": "age", "bins": {"age": 5}},
            Roles("label", ("age",), "who", ("row",), {"age": 5}),
        ),
        ({"secret": "row"}, Roles("label", ("row",), "who")),
        ({"drop": ["x", "row"]}, Roles("label", ("sex",), "who", ("row", "x"))),
    ],
)
def test_usual_roles_are_filled_in(given: dict, expected: Roles) -> None:
    usual = Roles("label", ("sex", "age"), "who", ("row",), {"age": 3})
    assert resolve_roles(usual, **given) == expected


def test_roles_that_nobody_names_are_refused() -> None:
    with pytest.raises(InputError, match="--label is missing"):
        resolve_roles(None, secret="sex")
    with pytest.raises(InputError, match=r"name the column to protect; known: 'label', 'sex'$"):
        resolve_roles(None, label="label", columns=("label", "sex"))
    with pytest.raises(InputError, match=r"name the column to protect$"):
        resolve_roles(None, label="label")
    assert resolve_roles(None, label="label", secret_needed=False).secrets == ()

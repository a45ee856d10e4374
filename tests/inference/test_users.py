"""User inference: the game, the split by persons, the encoder and the Gaussian likeness."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import special, stats
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Dataset, Task
from leakgauge.data.split import split_users
from leakgauge.defenses import GaussianNoise, none
from leakgauge.gradients import params_of
from leakgauge.inference.adversaries.adversary import Candidates
from leakgauge.inference.adversaries.encoder import Encoder
from leakgauge.inference.adversaries.pca_encoder import PcaEncoder
from leakgauge.inference.adversaries.plda import Plda, SameUser
from leakgauge.inference.adversaries.shadow_users import UserExamples, UserTrials, hold_out_users
from leakgauge.inference.games.blocks import MIN_BLOCKS
from leakgauge.inference.games.users import UserInference
from leakgauge.inference.run import make_stage
from leakgauge.inference.spec import InferenceSpec
from leakgauge.models import mlp
from leakgauge.results.measurements import Estimate
from leakgauge.results.scores import ScoredTrials, score
from leakgauge.training.observation import sent_gradients
from support.defenses import gaussian
from support.synthetic import small_task

PAPERS = Encoder(kernel=3, codes=16, hidden=32, epochs=10, batches=400)
ENCODER = PcaEncoder(components=24, hidden=32, codes=16, epochs=10, batches=400)
CALIBRATED = replace(ENCODER, temperature=None)
PLDA = Plda(components=24, batches=400)
each_attack = pytest.mark.parametrize("attack", [PAPERS, ENCODER, CALIBRATED, PLDA], ids=repr)
MAX_BYTES = 2**28


def people(shift: float, *, users: int = 40, each: int = 16, seed: int = 0) -> Dataset:
    """Return records of users whose features move by ``shift`` in a direction per user.

    Labels are mostly equal: records of different labels cancel in a batch's gradient.
    """
    rng = stream(seed, "people")
    person = rng.permutation(np.repeat(np.arange(users), each))
    x = rng.normal(size=(len(person), 6)) + shift * rng.normal(size=(users, 6))[person]
    y = (rng.random(len(person)) < 0.01).astype(np.int64)
    return Dataset(torch.from_numpy(x), torch.from_numpy(y), users=torch.from_numpy(person))


def deal(data: Dataset, *, batch_size: int = 4, seed: int = 0, **settings) -> UserInference:
    chosen = {"candidates": 2, **settings}
    return UserInference.deal(data, batch_size=batch_size, rng=stream(seed, "deal"), **chosen)


def auroc(
    attack, shift: float, *, m: int = 2, std: float = 0.0, seed: int = 0, users: int = 60
) -> Estimate:
    """Private persons who are not the adversary's."""
    pool, public = people(shift, users=users, seed=seed), people(shift, seed=seed + 1000)
    return attacked(attack, small_task(pool), pool, public, m=m, std=std, seed=seed)


def attacked(
    attack, task: Task, pool: Dataset, public: Dataset, *, m: int, std: float, seed: int, **settings
) -> Estimate:
    """The AUROC in the first round."""
    params = params_of(task.model)
    game = deal(pool, candidates=m, seed=seed, **settings)
    trials = game.draw_trials(400, rng=stream(seed, "play"))
    defense = gaussian(std) if std > 0 else none()
    bench = replace(game.shadow(task, params, public, max_bytes=MAX_BYTES), defense=defense)
    fitted = attack.fit(bench, np.log(game.prior), rng=stream(seed, "fit"))

    def sent(rows: torch.Tensor, defense):
        chunks = list(
            sent_gradients(
                task, params, pool, rows, defense=defense, noise_seed=7, max_bytes=MAX_BYTES
            )
        )
        return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}

    told = trials.candidates
    candidates = Candidates(sent(told.rows, none()), told.index)
    said = fitted.log_posterior(sent(trials.rows, defense), candidates)
    assert np.isfinite(said).all()
    assert np.exp(said).sum(axis=1) == pytest.approx(1)
    users = None if trials.users is None else trials.users.numpy()
    judged = ScoredTrials(trials.secret.numpy(), said, trials.block.numpy(), users)
    return score(judged, majority=1 / m, rng=stream(seed, "boot"))["auroc"]


# --- the game -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("m", [2, 3])
def test_what_the_adversary_holds_in_a_trial_is_not_observed_in_it(seed: int, m: int) -> None:
    """Also in redrawn rounds."""
    game = deal(people(0.0, each=9, seed=seed), candidates=m, seed=seed)
    trials = game.draw_trials(300, rng=stream(seed, "play"))
    for played in (trials, game.redraw(trials, rng=stream(seed, "again"))):
        told = played.candidates
        for seen, batches in zip(played.rows.tolist(), told.rows[told.index].tolist(), strict=True):
            assert not set(seen) & {one for batch in batches for one in batch}


def test_each_trial_draws_its_candidate_batches_anew() -> None:
    """A user's records are all held in some trial, each as often as the others, as in the paper."""
    game = deal(people(0.0, users=12, each=9), candidates=3)
    trials = game.draw_trials(4000, rng=stream(0, "play"))
    told = trials.candidates
    assert told.rows.shape == (12000, 4)
    assert torch.equal(told.index, torch.arange(12000).reshape(4000, 3))
    first = told.rows[told.index][torch.arange(4000), trials.secret]
    for rows in (told.rows, trials.rows, first):
        one = rows.flatten()[torch.isin(rows.flatten(), torch.from_numpy(game.records[5]))]
        assert stats.chisquare(torch.unique(one, return_counts=True)[1].numpy()).pvalue > 1e-3
        assert len(one.unique()) == 9


@pytest.mark.parametrize("draw", ["blocks", "iid"])
def test_candidates_are_any_of_many_users_without_blocks(draw: str) -> None:
    game = deal(people(0.0, users=80), candidates=3, draw=draw)
    trials = game.draw_trials(4000, rng=stream(0, "play"))
    assert (trials.users is None) == (draw == "blocks")
    told = trials.candidates
    asked = game.pool.users[told.rows[told.index][..., 0]]
    together = {frozenset(pair) for pair in asked[:, :2].tolist()}
    if draw == "iid":
        assert len(together) > 0.6 * 80 * 79 / 2
        assert game.notes == ()
        assert torch.equal(trials.users.sort(dim=1).values, asked.sort(dim=1).values)
    else:
        assert len(together) < 0.2 * 80 * 79 / 2


@pytest.mark.parametrize("m", [2, 3])
def test_a_trial_is_about_m_different_persons_of_its_block(m: int) -> None:
    game = deal(people(0.0), candidates=m)
    trials = game.draw_trials(400, rng=stream(0, "play"))
    whose = game.pool.users
    told = trials.candidates
    asked = whose[told.rows][told.index]  # [n, m, B]
    assert (asked == asked[:, :, :1]).all()
    persons = asked[:, :, 0]
    assert all(len(set(row.tolist())) == m for row in persons)
    true = persons[torch.arange(400), trials.secret]
    assert (whose[trials.rows] == true[:, None]).all()
    home = {int(p): int(b) for p, b in zip(whose, game.block, strict=True)}
    assert all(
        home[p] == b
        for row, b in zip(persons.tolist(), trials.block.tolist(), strict=True)
        for p in row
    )
    assert len(trials.block.unique()) >= MIN_BLOCKS


def test_the_secret_is_any_place_and_any_person_alike() -> None:
    game = deal(people(0.0, users=24), candidates=3)
    trials = game.draw_trials(6000, rng=stream(0, "play"))
    assert stats.chisquare(torch.bincount(trials.secret).numpy()).pvalue > 1e-3
    true = game.pool.users[trials.rows[:, 0]]
    assert stats.chisquare(torch.bincount(true).numpy()).pvalue > 1e-3


def test_no_record_twice_in_a_batch() -> None:
    trials = deal(people(0.0, each=9)).draw_trials(100, rng=stream(0, "play"))
    for batches in (trials.rows, trials.candidates.rows):
        assert all(len(set(row.tolist())) == 4 for row in batches)


def test_redraw_keeps_persons_and_secrets() -> None:
    game = deal(people(0.0))
    trials = game.draw_trials(100, rng=stream(0, "play"))
    again = game.redraw(trials, rng=stream(0, "again"))
    assert torch.equal(again.secret, trials.secret)
    assert torch.equal(again.block, trials.block)
    assert torch.equal(again.candidates.index, trials.candidates.index)
    whose = game.pool.users
    assert torch.equal(whose[again.rows[:, 0]], whose[trials.rows[:, 0]])
    assert torch.equal(whose[again.candidates.rows[:, 0]], whose[trials.candidates.rows[:, 0]])
    assert not torch.equal(again.rows, trials.rows)
    assert not torch.equal(again.candidates.rows, trials.candidates.rows)


@pytest.mark.parametrize(("users", "m"), [(15, 5), (8, 2), (39, 5)])
def test_few_persons_play_without_blocks(users: int, m: int) -> None:
    """As in the paper: the candidates of a trial are m of all of them, whoever they are."""
    game = deal(people(0.0, users=users), candidates=m)
    assert (game.block == 0).all()
    trials = game.draw_trials(3000, rng=stream(0, "play"))
    assert trials.users is not None
    assert trials.users.shape == (3000, m)
    asked = game.pool.users[trials.candidates.rows[:, 0]][trials.candidates.index]
    assert all(len(set(row.tolist())) == m for row in asked)
    true = asked[torch.arange(3000), trials.secret]
    assert (game.pool.users[trials.rows] == true[:, None]).all()
    assert stats.chisquare(torch.bincount(asked.flatten()).numpy()).pvalue > 1e-3
    assert torch.equal(game.redraw(trials, rng=stream(0, "again")).users, trials.users)
    assert f"{users} private users are fewer than the {8 * m}" in game.notes[0]
    enough = deal(people(0.0, users=8 * m), candidates=m)
    assert enough.notes == ()
    assert enough.draw_trials(10, rng=stream(0, "play")).users is None


def test_a_person_with_few_records_is_refused() -> None:
    data = people(0.0, users=30, each=8)
    few = torch.where(data.users == 3)[0]
    keep = torch.ones(len(data), dtype=torch.bool)
    keep[few[0]] = False  # 7 records, one less than two batches of 4
    with pytest.raises(InputError, match="1 of 30 private users have fewer than 8 records"):
        deal(data.rows(torch.where(keep)[0]))


@pytest.mark.parametrize(
    ("data", "settings", "says"),
    [
        (replace(people(0.0), users=None), {}, "name a column: --group COL"),
        (people(0.0), {"candidates": 1}, "expected 2 or more"),
        (people(0.0, users=7), {}, "with 2 candidates needs 8 private users with 8 records"),
        (people(0.0, users=9), {"candidates": 8}, "needs 10 .* there are 9; lower --batch-size, n"),
        (people(0.0), {"batch_size": 9}, "40 of 40 private users have fewer than 18 records"),
        (people(0.0), {"batch_size": 0}, "batch size is 0"),
    ],
)
def test_refusals(data: Dataset, settings: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        deal(data, **settings)


# --- the split ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_no_person_is_on_two_sides(seed: int) -> None:
    users = torch.from_numpy(stream(seed, "users").integers(70, size=900) * 3 + 1)
    split = split_users(users, rng=stream(seed, "split"))
    rows = [split.private, split.public, split.test]
    sides = [set(users[one].tolist()) for one in rows]
    assert sum(map(len, sides)) == len(set().union(*sides)) == len(users.unique())
    assert [round(len(side) / len(users.unique()), 1) for side in sides] == [0.4, 0.4, 0.2]
    assert sorted(torch.cat(rows).tolist()) == list(range(900))


@pytest.mark.parametrize("seed", range(3))
def test_persons_with_few_records_are_left_out_before_the_split(seed: int) -> None:
    users = torch.from_numpy(stream(seed, "users").integers(70, size=900) * 3 + 1)
    counts = dict(zip(*(one.tolist() for one in users.unique(return_counts=True)), strict=True))
    able = {one for one, count in counts.items() if count >= 13}
    assert 20 < len(able) < 60
    split = split_users(users, least=13, most=(5, 9), rng=stream(seed, "split"))
    sides = [set(users[one].tolist()) for one in (split.private, split.public, split.test)]
    assert [len(side) for side in sides] == [5, 9, len(able) - 14]
    assert set().union(*sides) == able
    assert sorted(torch.cat([split.private, split.public, split.test]).tolist()) == [
        row for row, one in enumerate(users.tolist()) if one in able
    ]


def test_too_many_wanted_persons_are_lowered_in_proportion() -> None:
    """From 50 users, 20 % are test users: 40 are left for 150 and 300 wanted."""
    users = torch.arange(100) // 2
    split = split_users(users, most=(150, 300), rng=stream(0, "split"))
    rows = (split.private, split.public, split.test)
    assert [len(users[one].unique()) for one in rows] == [13, 26, 11]
    split = split_users(users, most=(3, 0), rng=stream(0, "split"))
    rows = (split.private, split.public, split.test)
    assert [len(users[one].unique()) for one in rows] == [3, 20, 27]


def test_split_refusals() -> None:
    users, label = torch.arange(20) // 2, torch.zeros(20, dtype=torch.int64)
    with pytest.raises(InputError, match="sum to 1"):
        split_users(users, shares=(0.5, 0.4, 0.2), rng=stream(0, "split"))
    with pytest.raises(InputError, match="1 users leave no private one"):
        split_users(torch.zeros(3, dtype=torch.int64), rng=stream(0, "split"))
    with pytest.raises(InputError, match=r"10 users \(0 of them with 3 records .* leave no pr"):
        split_users(users, least=3, rng=stream(0, "split"))
    label[:1] = 1
    with pytest.raises(InputError, match="label value 'rare' has 1 records"):
        split_users(
            users, label=label, classes=("often", "rare"), need_label=2, rng=stream(0, "split")
        )


# --- both ways ------------------------------------------------------------------------------------


@each_attack
@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.calibration
def test_planted_persons_are_found(attack, m: int) -> None:
    assert auroc(attack, 6.0, m=m).value > 0.97


def test_more_shadow_persons_than_batches_are_no_hindrance() -> None:
    """One batch a person would not show how much a person's gradients vary."""
    few, enough = (auroc(replace(PLDA, batches=n), 1.0) for n in (40, 160))  # of 40 persons
    assert few == enough
    assert few.value > 0.95


@each_attack
@pytest.mark.calibration
def test_persons_who_are_like_all_others_are_not_found(attack) -> None:
    found = [auroc(attack, 0.0, seed=seed) for seed in range(3)]
    assert sum(one.low <= 0.5 <= one.high for one in found) >= 2
    assert np.mean([one.value for one in found]) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("attack", [PAPERS, PLDA], ids=["encoder", "plda"])
@pytest.mark.calibration
def test_few_planted_persons_are_found(attack) -> None:
    """Fifteen private persons, five candidates, as in the paper."""
    found = auroc(attack, 6.0, m=5, users=15)
    assert found.value > 0.93
    assert found.low > 0.85


@pytest.mark.calibration
def test_intervals_of_few_persons_hold_chance_where_nothing_leaks() -> None:
    """95 % intervals, twelve seeds: nine or fewer would have a chance of 2 %."""
    found = [auroc(PLDA, 0.0, m=5, users=15, seed=seed) for seed in range(12)]
    assert sum(one.low <= 0.5 <= one.high for one in found) >= 10
    assert np.mean([one.value for one in found]) == pytest.approx(0.5, abs=0.05)
    assert all(0.05 < one.high - one.low < 0.4 for one in found)


def test_noise_that_is_known_is_reckoned_with() -> None:
    """Strong noise spoils what is seen, and the fitted likeness says so by a wider covariance."""
    assert 0.55 < auroc(PLDA, 6.0, std=3.0).value < auroc(PLDA, 6.0).value


@pytest.mark.slow
def test_actors_are_distinguished_by_their_speech(data_folder: Path) -> None:
    """CREMA-D, features and network of the paper, before the first epoch: the paper has 0.6808."""
    frame = pd.read_parquet(data_folder / "crema_d" / "crema_d_emobase_hap_sad.parquet")
    x = torch.tensor(frame.iloc[:, 9:].to_numpy(np.float32))
    y = torch.from_numpy((frame["emotion"] == "SAD").to_numpy(np.int64))
    users = torch.from_numpy(pd.factorize(frame["actor"])[0].astype(np.int64))
    split = split_users(users, label=y, rng=stream(0, "split"))
    mean, scale = x[split.private].mean(dim=0), x[split.private].std(dim=0)
    data = Dataset((x - mean) / torch.where(scale > 0, scale, 1), y, users=users)
    task = Task(mlp(x.shape[1], 2, generator=torch_stream(0, "model")), cross_entropy)
    pool, public = data.rows(split.private), data.rows(split.public)
    settings = {"m": 2, "std": 0.0, "seed": 0, "batch_size": 8}
    assert attacked(Plda(), task, pool, public, **settings).value > 0.85
    assert attacked(PcaEncoder(), task, pool, public, **settings).value > 0.75
    assert attacked(Encoder(), task, pool, public, **settings).value > 0.75


# --- literally ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench():
    data = people(2.0, users=24)
    task = small_task(data)
    game = deal(data)
    return game.shadow(task, params_of(task.model), people(2.0, seed=5), max_bytes=MAX_BYTES)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_posterior_is_the_softmax_of_negative_distances(bench, temperature: float) -> None:
    attack = replace(ENCODER, temperature=temperature, epochs=1)
    prior = np.array([0.2, 0.3, 0.5])
    fitted = attack.fit(bench, np.log(prior), rng=stream(0, "fit"))
    seen, held = (next(bench.gradients(bench.draw(n, rng=stream(n, "x"))[0])) for n in (5, 4))
    index = torch.tensor([[0, 1, 2], [3, 2, 1], [0, 0, 3], [1, 3, 0], [2, 0, 1]])
    said = np.exp(fitted.log_posterior(seen, Candidates(held, index)))

    def code(grads, row: int) -> list[float]:
        flat = torch.cat([leaf[row].flatten() for leaf in grads.values()]).double().numpy()
        reduced = (flat - fitted.view.mean.numpy()) @ fitted.view.axes.numpy()
        scaled = torch.from_numpy((reduced - fitted.likeness.mean) / fitted.likeness.scale)
        return fitted.likeness.encoder(scaled[None])[0].tolist()

    for row in range(5):
        weights = []
        for place in range(3):
            pairs = zip(code(seen, row), code(held, int(index[row, place])), strict=True)
            distance = math.sqrt(sum((a - b) ** 2 for a, b in pairs))
            weights.append(prior[place] * math.exp(-distance / temperature))
        assert said[row] == pytest.approx([w / sum(weights) for w in weights])


@pytest.mark.parametrize("scaled", [False, True])
def test_the_paper_s_posterior_written_down_literally(bench, *, scaled: bool) -> None:
    """Maxima of windows of each parameter, one hidden layer, and Eq. of section 4.1."""
    attack = replace(PAPERS, scaled=scaled)
    fitted = attack.fit(bench, np.log(np.full(3, 1 / 3)), rng=stream(0, "fit"))
    seen, held = (next(bench.gradients(bench.draw(n, rng=stream(n, "x"))[0])) for n in (5, 4))
    index = torch.tensor([[0, 1, 2], [3, 2, 1], [0, 1, 3], [1, 3, 0], [2, 0, 1]])
    said = np.exp(fitted.log_posterior(seen, Candidates(held, index)))
    first, bend, last = fitted.encoder
    assert isinstance(bend, torch.nn.ReLU)
    assert (first.out_features, last.out_features) == (32, 16)

    def code(grads, row: int) -> list[float]:
        pooled = []
        for leaf in grads.values():
            flat = leaf[row].flatten().tolist()
            pooled += [max(flat[at : at + 3]) for at in range(0, len(flat), 3)]
        x = (torch.tensor(pooled) - fitted.mean) / fitted.scale
        rows = zip(first.weight.detach(), first.bias.detach(), strict=True)
        hidden = torch.tensor([max(0.0, float(w @ x + b)) for w, b in rows])
        rows = zip(last.weight.detach(), last.bias.detach(), strict=True)
        return [float(w @ hidden + b) for w, b in rows]

    if not scaled:
        assert fitted.scale == 1
        assert not fitted.mean.any()
    for row in range(5):
        observed = code(seen, row)
        weights = [math.exp(-math.dist(code(held, one), observed)) for one in index[row].tolist()]
        assert said[row] == pytest.approx([w / sum(weights) for w in weights], rel=1e-4)


def test_a_code_is_as_long_as_in_the_paper(bench) -> None:
    """50 for speech, here a row of a table, and 100 for faces."""
    prior = np.log([0.5, 0.5])
    attack = replace(PAPERS, codes=None, epochs=1, batches=40)
    assert attack.fit(bench, prior, rng=stream(0, "fit")).encoder[-1].out_features == 50
    body = torch.nn.Sequential(torch.nn.Flatten(), bench.task.model)
    faces = replace(bench.data, x=bench.data.x[:, None, :])
    params = params_of(body)
    shadow = replace(bench, task=Task(body, cross_entropy), data=faces, params=params)
    assert attack.fit(shadow, prior, rng=stream(0, "fit")).encoder[-1].out_features == 100


@pytest.mark.parametrize("noise", [0.0, 0.7])
def test_same_person_is_a_conditional_gaussian(noise: float) -> None:
    """Against the joint density of the two batches, over that of the held one."""
    rng, k = stream(0, "gauss"), 3
    mean, root, other = rng.normal(size=k), rng.normal(size=(k, k)), rng.normal(size=(k, k))
    between, within = root @ root.T, other @ other.T + 0.1 * np.eye(k)
    likeness = SameUser.given(mean, between, within, noise)
    seen, held = rng.normal(size=(4, k)), rng.normal(size=(4, 5, k))
    said = likeness(seen, held)
    joint = np.block(
        [[between + within + noise**2 * np.eye(k), between], [between, between + within]]
    )
    for row in range(4):
        literal = [
            stats.multivariate_normal(np.tile(mean, 2), joint).logpdf(np.append(seen[row], one))
            - stats.multivariate_normal(mean, between + within).logpdf(one)
            for one in held[row]
        ]
        assert special.log_softmax(said[row]) == pytest.approx(special.log_softmax(literal))


def test_covariances_are_those_the_lesson_was_drawn_from() -> None:
    """Batches of 5 records that are drawn anew from the 20 of a person, as the bench does."""
    rng, persons = stream(0, "lesson"), 3000
    between, within = np.diag([4.0, 0.5]), np.array([[1.0, 0.3], [0.3, 0.5]])
    centre = rng.multivariate_normal([1.0, 2.0], between, size=persons)
    records = centre[:, None] + rng.multivariate_normal([0, 0], 5 * within, size=(persons, 20))
    person = np.repeat(np.arange(persons), 10)
    drawn = records[person[:, None], rng.integers(20, size=(len(person), 5))].mean(axis=1)
    likeness = SameUser.learn(UserExamples(drawn, drawn, person, 5 / 20), ridge=1e-9, noise=0.0)
    true = SameUser.given(np.array([1.0, 2.0]), between, within, 0.0)
    assert likeness.mean == pytest.approx(true.mean, abs=0.15)
    assert likeness.pull == pytest.approx(true.pull, abs=0.05)
    assert likeness.root @ likeness.root.T == pytest.approx(true.root @ true.root.T, rel=0.1)


# --- calibration ----------------------------------------------------------------------------------


def test_held_out_persons_are_not_learnt_from() -> None:
    rng = stream(0, "held")
    person = np.repeat(np.arange(12), 4)
    examples = UserExamples(rng.normal(size=(48, 2)), np.zeros((48, 2)), person, 0.1)
    # the features name the user, so that a likeness sees which user it scores
    trials = UserTrials(person[:, None] * 1.0, person, np.arange(12)[:, None] * 1.0, seed=0)
    judged = []

    def learn(part: UserExamples):
        known = set(part.user.tolist())

        def likeness(seen: np.ndarray, held: np.ndarray) -> np.ndarray:
            assert not known & set(seen.ravel().astype(int).tolist())
            assert not known & set(held.ravel().astype(int).tolist())
            assert known | set(seen.ravel().astype(int).tolist()) > known
            judged.extend(seen.ravel().tolist())
            return -np.abs(seen[:, None] - held)[..., 0]

        return likeness

    found = hold_out_users(examples, trials, learn, candidates=3, folds=4)
    assert sorted(judged) == person.tolist()
    assert (found.log_odds[np.arange(48), found.secret] == 0).all()  # the true one is the nearest
    assert (np.sort(found.log_odds, axis=1)[:, :2] < 0).all()
    with pytest.raises(InputError, match="need 20, 5 candidates each; there are 12"):
        hold_out_users(examples, trials, learn, candidates=5, folds=4)


@pytest.mark.parametrize("attack", [CALIBRATED, PLDA], ids=["encoder", "plda"])
def test_who_knows_nothing_says_so(attack) -> None:
    """Nothing planted: the fitted slope makes the posterior nearly the prior."""
    data = people(0.0, seed=3)
    task = small_task(data)
    bench = deal(data).shadow(task, params_of(task.model), data, max_bytes=MAX_BYTES)
    fitted = attack.fit(bench, np.log([0.5, 0.5]), rng=stream(0, "fit"))
    losses = -special.log_softmax(fitted.held_out.log_odds, axis=1)
    truth = fitted.held_out.secret
    assert losses[np.arange(len(truth)), truth].mean() == pytest.approx(np.log(2), abs=0.02)


@each_attack
def test_the_same_seed_gives_the_same_adversary(bench, attack) -> None:
    grads = next(bench.gradients(bench.draw(6, rng=stream(0, "x"))[0]))
    candidates = Candidates(grads, torch.tensor([[1, 2], [3, 4], [5, 0]]).repeat(2, 1))
    torch.manual_seed(0)
    attack = replace(attack, batches=100)
    once = attack.fit(bench, np.log([0.5, 0.5]), rng=stream(0, "fit"))
    torch.manual_seed(1)  # nothing is drawn from the global randomness
    again = attack.fit(bench, np.log([0.5, 0.5]), rng=stream(0, "fit"))
    one, other = (fitted.log_posterior(grads, candidates) for fitted in (once, again))
    assert np.array_equal(one, other)


def test_a_person_with_one_record_is_refused(bench) -> None:
    users = bench.data.users.clone()
    users[0] = 999
    lone = deal(people(2.0)).shadow(
        bench.task, bench.params, replace(bench.data, users=users), max_bytes=MAX_BYTES
    )
    with pytest.raises(InputError, match="1 of 41 shadow users have one record only"):
        PLDA.fit(lone, np.log([0.5, 0.5]), rng=stream(0, "fit"))


def test_persons_who_do_not_fit_are_refused_before_any_training() -> None:
    data = replace(people(2.0, users=200, each=8), secrets={})
    split = split_users(data.users, rng=stream(0, "split"))
    lone = torch.unique(data.users[split.public])[::3]  # one record is left of each third
    public = [int(row) for row in split.public if data.users[row] not in lone]
    public += [int(torch.where(data.users == one)[0][0]) for one in lone]
    split = replace(split, public=torch.tensor(sorted(public)))
    settings = InferenceSpec(group="person", batch_size=2, rounds=1, trials=200)
    with pytest.raises(InputError, match="shadow users have one record only"):
        make_stage("user", small_task(data), data, split, attacks=[PLDA], spec=settings)


def test_candidates_go_without_the_noise(bench) -> None:
    """The axes and the covariances are those without it; only what is seen has more."""
    noisy = replace(bench, defense=gaussian(0.5))
    assert isinstance(noisy.defense.update, GaussianNoise)
    plain, wide = (
        PLDA.fit(one, np.log([0.5, 0.5]), rng=stream(0, "fit")) for one in (bench, noisy)
    )
    assert torch.equal(plain.view.axes, wide.view.axes)
    assert np.array_equal(plain.likeness.pull, wide.likeness.pull)
    gained = wide.likeness.root @ wide.likeness.root.T - plain.likeness.root @ plain.likeness.root.T
    assert gained == pytest.approx(0.25 * np.eye(len(gained)))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Encoder(epochs=0), "number of epochs is 0"),
        (lambda: Encoder(codes=0), "number of units of a code is 0"),
        (lambda: Encoder(kernel=0), "pooling kernel is 0"),
        (lambda: PcaEncoder(epochs=0), "number of epochs is 0"),
        (lambda: PcaEncoder(temperature=-1.0), "temperature is -1"),
        (lambda: PcaEncoder(folds=1), "number of folds is 1"),
        (lambda: Plda(ridge=2.0), "ridge is 2; expected at most 1"),
        (lambda: Plda(ridge=0.0), "ridge is 0"),
        (lambda: Plda(folds=1), "number of folds is 1"),
    ],
)
def test_settings_are_checked(make, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()

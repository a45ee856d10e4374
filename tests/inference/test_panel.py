"""The panel: several adversaries, their sum, and the headline that shadow data choose."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from leakgauge.core.rng import stream
from leakgauge.inference import Discriminant, Energies, Forest, Joint
from leakgauge.inference.adversaries import shadow as shadow_
from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.inference.adversaries.sharing import Shared
from leakgauge.inference.adversaries.stacking import Stack, cross_weighted, held_out_scores
from leakgauge.inference.catalog import PANEL
from leakgauge.inference.run import attack_round, audit, trajectory
from leakgauge.inference.run.measuring import headline
from leakgauge.inference.run.readings import (
    RunReading,
    WeightingRules,
    chosen,
    over_rounds,
    pooled,
    weighted,
)
from leakgauge.results.measurements import ACCUMULATED, CHOSEN, HEADLINE, STACKED, Measurement
from leakgauge.results.scores import AUROC, ScoredTrials, figures
from support.defenses import dpsgd
from support.synthetic import bench, records, small_stage

MEMBERS = (Forest(trees=5, batches=200), Energies(batches=200), Discriminant(batches=200))
NAMES = tuple(attack.name for attack in MEMBERS)
RULES = WeightingRules(np.log([0.5, 0.5]), batches=30)


def stage(*attacks, shift: float = 1.2, panel: tuple[str, ...] = NAMES, **settings):
    made = small_stage(records(shift, n=1800), *(attacks or MEMBERS), **settings)
    return replace(made, panel=panel)


def at(measurements: list[Measurement], adversary: str, when: int | str) -> Measurement:
    (one,) = (
        m for m in measurements if (m.adversary, m.round, m.metric) == (adversary, when, AUROC)
    )
    return one


def gaussian(shifts: list[float], n: int, seed: int = 0) -> tuple[np.ndarray, list[np.ndarray]]:
    """Secrets, and the log-odds of adversaries that see independent shifts of a unit Gaussian."""
    rng = stream(seed, "gaussian")
    truth = np.arange(n) % 2
    odds = [mu * (rng.normal(size=n) + mu * (truth - 0.5)) for mu in shifts]
    return truth, [one[:, None] * np.array([-0.5, 0.5]) for one in odds]


def normalised(log_odds: np.ndarray) -> np.ndarray:
    return log_odds - np.logaddexp.reduce(log_odds, axis=1, keepdims=True)


def readings(shifts: list[float], *, worse: list[float] | None = None) -> list[RunReading]:
    """Rounds of one adversary: held-out batches with shifts, and trials, perhaps with others."""
    secret, held_out = gaussian(shifts, 4000)
    _, trials = gaussian(worse or shifts, 4000, seed=1)
    return [
        RunReading(number, normalised(trial), HeldOut(judged, secret))
        for number, (judged, trial) in enumerate(zip(held_out, trials, strict=True), start=1)
    ]


def of_trials(reading: RunReading) -> float:
    truth = np.arange(len(reading.log_posterior)) % 2
    return figures(ScoredTrials(truth, reading.log_posterior, truth))[AUROC]


def test_the_weighted_sum_reaches_what_independent_members_know_together() -> None:
    """Shifts mu_i of unit Gaussians are one of length |mu|, with AUROC Phi(|mu| / sqrt 2)."""
    shifts = [0.3, 1.0, 0.6]
    found = weighted(readings(shifts), RULES, STACKED, "{}")
    expected = stats.norm.cdf(np.linalg.norm(shifts) / np.sqrt(2))
    assert of_trials(found) == pytest.approx(expected, abs=0.015)
    assert found.auroc == pytest.approx(expected, abs=0.015)


def named(*members: RunReading) -> dict[str, RunReading]:
    return {f"member {number}": one for number, one in enumerate(members)}


def test_quotients_have_one_half_of_the_panel() -> None:
    """Three that read the shape of a gradient count as much as one that reads the records."""
    one, two, three, own = readings([0.7, 0.7, 0.7, 0.7])
    members = {**named(one, two, three), "quotients": own}
    found = pooled(members, RULES, STACKED, "{}")
    by_hand = sum(each.log_posterior for each in (one, two, three)) / 3 + own.log_posterior
    assert of_trials(found) == pytest.approx(of_trials(replace(own, log_posterior=by_hand)), 0.005)


def test_the_pool_of_equally_informed_members_reaches_what_they_know_together() -> None:
    found = pooled(named(*readings([0.7, 0.7, 0.7])), RULES, STACKED, "{}")
    expected = stats.norm.cdf(0.7 * np.sqrt(3) / np.sqrt(2))
    assert of_trials(found) == pytest.approx(expected, abs=0.015)
    assert found.auroc == pytest.approx(expected, abs=0.015)


def test_the_pool_gives_members_without_knowledge_no_weight() -> None:
    """They are sure of themselves: their plain sum drowns the member that knows."""
    (known,), rng = readings([1.0]), stream(3, "sure")
    sure = [
        RunReading(1, normalised(one), HeldOut(other, np.arange(4000) % 2))
        for one, other in 5 * rng.normal(size=(6, 2, 4000, 1)) * [-0.5, 0.5]
    ]
    found = pooled(named(known, *sure), RULES, STACKED, "{}")
    assert of_trials(found) > of_trials(known) - 0.01
    plain = replace(known, log_posterior=sum(one.log_posterior for one in [known, *sure]))
    assert of_trials(plain) < of_trials(known) - 0.1


def test_few_held_out_batches_do_not_choose_among_members() -> None:
    """One member's held-out batches came out well by chance; regression trusts it alone."""
    lucky, other = readings([2.0], worse=[0.8])[0], readings([0.8])[0]
    rng = stream(4, "other")
    truth = np.arange(4000) % 2
    odds = 0.8 * (rng.normal(size=4000) + 0.8 * (truth - 0.5))
    other = replace(other, log_posterior=normalised(odds[:, None] * np.array([-0.5, 0.5])))
    together = of_trials(pooled(named(lucky, other), RULES, STACKED, "{}"))
    assert together > of_trials(weighted([lucky, other], RULES, STACKED, "{}")) + 0.01


def test_held_out_weights_are_scored_on_other_batches_than_they_were_fitted_on() -> None:
    """Fifty members without knowledge: fitted on the same batches, they would seem to know."""
    rng = stream(0, "noise")
    secret = np.arange(300) % 2
    held_out = [HeldOut(rng.normal(size=(300, 1)) * [-0.5, 0.5], secret) for _ in range(50)]
    stack = Stack(penalty=1e-6)
    weights = stack.fit(held_out)
    sums = np.tensordot(weights, np.stack([one.log_odds for one in held_out]), 1)
    assert figures(ScoredTrials(secret, sums, secret))[AUROC] > 0.65
    crossed = cross_weighted(held_out, stack)
    assert figures(ScoredTrials(secret, crossed.log_odds, secret))[AUROC] < 0.6


def test_rounds_without_knowledge_do_not_drown_the_one_that_has_it() -> None:
    """The plain sum counts nineteen overconfident rounds; the chosen reading does not."""
    secret, (known,) = gaussian([1.0], 3000)
    _, (trial,) = gaussian([1.0], 3000, seed=1)
    rng = stream(2, "sure")
    rounds = [RunReading(1, normalised(trial), HeldOut(known, secret))]
    for number in range(2, 21):
        sure, also = (3 * rng.normal(size=(3000, 1)) * [-0.5, 0.5] for _ in range(2))
        rounds.append(RunReading(number, normalised(also), HeldOut(sure, secret)))
    sums = over_rounds(rounds, RULES, weigh=True)
    picked = chosen([*sums, *rounds], margin=RULES.margin)
    assert picked is not None
    assert of_trials(picked) > of_trials(rounds[0]) - 0.02
    assert of_trials(sums[1]) < of_trials(rounds[0]) - 0.1


def test_the_preferred_reading_stands_unless_another_is_clearly_better() -> None:
    weak, slightly, clearly = readings([0.5]), readings([0.55]), readings([1.0])
    assert chosen([*weak, *slightly], margin=0.05) is weak[0]
    assert chosen([*weak, *slightly], margin=0.0) is slightly[0]
    assert chosen([*weak, *clearly], margin=0.05) is clearly[0]
    assert chosen([replace(weak[0], held_out=None)], margin=0.05) is None


def test_the_headline_does_not_look_at_trials() -> None:
    """The figure on trials is upside down; held-out batches decide all the same."""
    best = {
        "a": readings([1.0], worse=[0.1])[0],
        "b": readings([0.3], worse=[2.0])[0],
    }
    assert headline(best, RULES) == "a"
    assert headline({PANEL: best["b"], "a": best["a"]}, RULES) == "a"
    few = WeightingRules(RULES.log_prior, batches=1)  # so few shadow records decide nothing
    assert headline({PANEL: best["b"], "a": best["a"]}, few) == PANEL


def test_fewer_shadow_records_draw_weights_together() -> None:
    rounds = readings([0.2, 1.0])
    spread = [
        np.ptp([float(w) for w in text.split(", ")])
        for text in (
            weighted(rounds, WeightingRules(RULES.log_prior, k), STACKED, "{}").details[
                "accumulation"
            ]
            for k in (300, 30, 1)
        )
    ]
    assert spread[0] > spread[1] > spread[2]


def test_every_member_is_measured_with_the_panel_and_one_is_the_headline() -> None:
    found = audit(stage(rounds=2))
    heads = [m for m in found if m.round == HEADLINE and m.metric == AUROC]
    assert len(heads) == 1
    for name in (PANEL, *NAMES):
        for when in (1, 2, ACCUMULATED, STACKED, CHOSEN):
            assert at(found, name, when).held_out is not None
        assert "reading" in at(found, name, CHOSEN).details
    (head,) = heads
    assert head.estimate == at(found, head.adversary, CHOSEN).estimate
    assert head.estimate.value > at(found, "forest", ACCUMULATED).estimate.value - 0.02


def test_an_adversary_alone_is_the_papers_and_has_no_headline() -> None:
    found = audit(stage(MEMBERS[0], panel=()))
    assert {m.adversary for m in found if m.metric == AUROC} == {"forest"}
    assert not {m.round for m in found} & {CHOSEN, HEADLINE, STACKED}


def test_members_score_as_they_do_alone() -> None:
    """What they share are batches and gradients, which are the same for each."""
    together = stage(rounds=1)
    start, _ = trajectory(together)
    several = attack_round(together, 1, start)
    for attack in MEMBERS:
        alone = attack_round(stage(attack, panel=(), rounds=1), 1, start)
        key = f"static {attack.name}"
        np.testing.assert_array_equal(several.log_posterior[key], alone.log_posterior[key])


@pytest.mark.parametrize("max_bytes", [0, 2**26])
def test_gradients_of_shadow_batches_are_made_once(max_bytes: int, monkeypatch) -> None:
    """Where they fit into memory; where not, the figures are the same."""
    made: list[int] = []
    sent = shadow_.sent_gradients
    monkeypatch.setattr(
        shadow_, "sent_gradients", lambda *of, **how: (made.append(len(of[3])), sent(*of, **how))[1]
    )
    forest, energies, _ = MEMBERS
    shared = bench(1.0).sharing(Shared([forest.view, energies.view], max_bytes=max_bytes))
    for attack in (forest, energies):
        fitted = attack.fit(shared, RULES.log_prior, rng=stream(0, "fit"))
        held_out_scores(attack, fitted, shared, batches=200, rng=stream(0, "fit"))
    rest, judged = 4 * 200, 3 * 66  # of three folds and all records; of three folds
    assert sum(made) == (rest + judged if max_bytes else 2 * (rest + judged))


@pytest.mark.slow
@pytest.mark.calibration
def test_no_secret_gives_no_alarm() -> None:
    low = [
        min(m.estimate.low for m in audit(
            replace(
                small_stage(records(0.0, n=1300, seed=seed), *MEMBERS, trials=200, rounds=2),
                panel=NAMES,
            )
        ) if m.round == HEADLINE and m.metric == AUROC)
        for seed in range(10)
    ]  # fmt: skip
    assert sum(one > 0.5 for one in low) <= 2


@pytest.mark.slow
def test_under_noise_the_panel_hears_all_rounds_at_once() -> None:
    noisy = dpsgd(clip=1.0, noise=0.5, batch_size=8)
    several = (*MEMBERS, Joint(batches=200))
    found = audit(stage(*several, panel=(*NAMES, "joint"), defense=noisy, rounds=4, trials=400))
    heads = {m.knowledge: m for m in found if m.round == HEADLINE and m.metric == AUROC}
    assert set(heads) == {"static", "adaptive"}
    forest = [
        m for m in found if (m.adversary, m.round, m.metric) == ("forest", ACCUMULATED, AUROC)
    ]
    best = max(m.estimate.value for m in forest)
    assert heads["adaptive"].estimate.value > best


def test_three_values_are_each_compared_with_the_rest() -> None:
    made = small_stage(records(1.5, n=1800, values=3), *MEMBERS, trials=300, rounds=1)
    found = audit(replace(made, panel=NAMES))
    each = [m for m in found if m.metric.startswith(f"{AUROC}: ")]
    assert {m.metric.partition(": ")[2] for m in each} == set(made.game.value_names)
    (head,) = [m for m in found if m.round == HEADLINE and m.metric == AUROC]
    assert {(m.round, m.adversary) for m in each} == {(HEADLINE, head.adversary)}
    assert np.mean([m.estimate.value for m in each]) == pytest.approx(head.estimate.value)
    assert sum(m.estimate.n for m in each) == head.estimate.n

"""Defenses in the audit: in training, on what is sent, and in what an adaptive adversary learns."""

import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from leakgauge.core.rng import stream
from leakgauge.defenses import Defense, Identity, NotLearned, PerturbTransform, none
from leakgauge.gradients import per_example_gradients
from leakgauge.inference import Attack, Forest, Joint
from leakgauge.inference.run import GameStage, attack_round, audit, measure, trajectory
from leakgauge.inference.run.observing import defense_of_round
from leakgauge.results.roc import auroc
from leakgauge.training.observation import sent_gradients
from support.defenses import clip, dpsgd, gaussian, perturb, prune, quantise, sign, vib
from support.synthetic import records, small_stage

FOREST = Forest(trees=20, batches=300)


def defended(defense, **settings) -> GameStage:
    return small_stage(records(3.0), FOREST, defense=defense, **settings)


def separation(stage: GameStage, knowledge: str) -> float:
    said = attack_round(stage, 1, next(trajectory(stage))).log_posterior[f"{knowledge} forest"]
    truth = stage.trials.secret.numpy()
    return float(auroc(truth == 1, said[:, 1] - said[:, 0]))


def test_an_adaptive_adversary_sees_through_a_sign_and_a_static_one_does_not() -> None:
    stage = defended(sign())
    assert separation(stage, "adaptive") > 0.9
    assert separation(stage, "adaptive") > separation(stage, "static")


@pytest.mark.calibration
def test_noise_that_drowns_the_gradient_leaves_nothing() -> None:
    stage = defended(gaussian(1e6))
    assert separation(stage, "adaptive") == pytest.approx(0.5, abs=0.1)


def test_without_a_defense_there_is_nothing_to_adapt_to() -> None:
    stage = defended(none())
    assert stage.knowledge == ("static",)
    assert set(attack_round(stage, 1, next(trajectory(stage))).log_posterior) == {"static forest"}


def test_training_under_a_defense_is_sgd_on_what_is_sent() -> None:
    stage = defended(sign())
    first, second, *_ = trajectory(stage)
    current = {name: leaf.clone().requires_grad_() for name, leaf in first.items()}
    order = stream(0, "property", "train", 1).permutation(len(stage.private))
    for start in range(0, len(order), 8):
        batch = torch.from_numpy(order[start : start + 8])
        outputs = torch.func.functional_call(stage.task.model, current, (stage.private.x[batch],))
        loss = stage.task.loss(outputs, stage.private.y[batch])
        for leaf, step in zip(
            current.values(), torch.autograd.grad(loss, list(current.values())), strict=True
        ):
            leaf.data -= 0.01 * step.sign()
    for name, leaf in current.items():
        torch.testing.assert_close(leaf.detach(), second[name], rtol=1e-9, atol=1e-12)


def test_training_clips_each_record() -> None:
    """With a bound far below every norm, a step is a mean of unit gradients times the bound."""
    bound = 1e-3
    stage = defended(clip(bound))
    first, second, *_ = trajectory(stage)
    batch = torch.from_numpy(stream(0, "property", "train", 1).permutation(len(stage.private))[:8])
    grads = per_example_gradients(stage.task, first, stage.private.x[batch], stage.private.y[batch])
    norms = sum(leaf.flatten(1).square().sum(1) for leaf in grads.values()).sqrt()
    assert float(norms.min()) > bound
    moved = sum(float((second[k] - first[k]).square().sum()) for k in first) ** 0.5
    steps = -(-len(stage.private) // 8)
    assert 0 < moved <= 0.01 * bound * steps


@pytest.mark.parametrize("defense", [prune(0.9), gaussian(0.1), dpsgd(2.0, 0.1, batch_size=8)])
def test_what_is_sent_does_not_depend_on_chunks(defense) -> None:
    stage = defended(defense)
    params = next(trajectory(stage))
    found = []
    for max_bytes in (2**28, 2**15):
        chunks = sent_gradients(
            stage.task,
            params,
            stage.private,
            stage.trials.rows[:60],
            defense=defense,
            noise_seed=3,
            max_bytes=max_bytes,
        )
        found.append([torch.cat([leaf.flatten(1) for leaf in one.values()], 1) for one in chunks])
    assert len(found[1]) > len(found[0])
    torch.testing.assert_close(torch.cat(found[0]), torch.cat(found[1]), rtol=1e-9, atol=1e-12)


def test_batches_wanted_alone_are_sent_as_among_all() -> None:
    stage = defended(quantise(2))
    rows, wanted = stage.trials.rows[:60], torch.tensor([59, 3, 17])

    def sent(max_bytes: int, only: torch.Tensor | None = None) -> torch.Tensor:
        chunks = sent_gradients(
            stage.task,
            next(trajectory(stage)),
            stage.private,
            rows,
            defense=stage.defense,
            noise_seed=3,
            max_bytes=max_bytes,
            only=only,
        )
        return torch.cat([torch.cat([v.flatten(1) for v in one.values()], 1) for one in chunks])

    for max_bytes in (2**28, 2**15):
        torch.testing.assert_close(sent(max_bytes, wanted), sent(2**28)[wanted])


def test_noise_is_fresh_in_every_round() -> None:
    stage = defended(gaussian(1.0), rounds=2)
    params = next(trajectory(stage))
    first, second = (attack_round(stage, n, params).log_posterior["static forest"] for n in (1, 2))
    assert not np.array_equal(first, second)


def test_perturbation_is_small_and_an_adaptive_adversary_sees_it() -> None:
    """The change itself tells the secret, which the defender knows, to whoever has seen it."""
    stage = small_stage(records(0.0), FOREST, defense=perturb(gamma=0.05, alpha=0.02, steps=4))
    assert separation(stage, "adaptive") > 0.9  # planted leak
    assert separation(stage, "adaptive") > separation(stage, "static")


def test_perturbation_is_learnt_in_each_round_on_public_gradients_alone() -> None:
    stage = defended(perturb())
    params = next(trajectory(stage))
    other = replace(stage, private=stage.private.rows(torch.arange(100)))
    for one, same in zip(learnt(stage, 1, params), learnt(other, 1, params), strict=True):
        assert torch.equal(one, same)
    assert not all(
        torch.equal(one, later)
        for one, later in zip(learnt(stage, 1, params), learnt(stage, 2, params), strict=True)
    )


def learnt(stage: GameStage, number: int, params) -> list[torch.Tensor]:
    update = defense_of_round(stage, number, params).update
    assert isinstance(update, PerturbTransform)
    return list(update.network.parameters())


def test_vib_trains_and_is_attacked_with_its_noise_and_measured_without() -> None:
    stage = defended(vib(beta=0.01))
    first, *_, last = trajectory(stage)
    assert any("log_variance" in name for name in first)
    assert not torch.equal(first["mean.weight"], last["mean.weight"])
    assert separation(stage, "adaptive") > 0.9
    played = [attack_round(stage, number, first) for number in (1, 2)]
    judged = measure(stage, played, last, dataset="d", label="l")
    (accuracy,) = [one for one in judged if one.metric == "accuracy"]
    assert accuracy.estimate.value > 0.5
    names = ("static forest", "adaptive forest")  # there is no gradient without the code's noise
    assert np.array_equal(*(played[0].log_posterior[name] for name in names))


def test_a_code_has_fresh_noise_in_each_round() -> None:
    stage = defended(vib())
    one, again, next_round, adversary = (
        stage.in_round(stage.private, whose, number).x
        for whose, number in (("client", 1), ("client", 1), ("client", 2), ("adversary", 1))
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, next_round)
    assert not torch.equal(one, adversary)
    assert torch.equal(one[:, :6], next_round[:, :6])


@dataclass(frozen=True)
class Counted:
    """Learns nothing, and counts how often."""

    rounds: list[torch.Tensor]

    def __call__(self, features, secret, *, classes, generator) -> Identity:
        self.rounds.append(features)
        return Identity()


def counted(kept: list[torch.Tensor], *attacks: Attack, **settings) -> GameStage:
    learnt = Defense("counted", update=NotLearned(), learn=Counted(kept))
    return small_stage(records(0.0), *attacks, defense=learnt, trials=200, **settings)


def test_a_defense_is_learned_once_in_each_round() -> None:
    """Training, the round's attacks and those on all rounds together share it."""
    rounds: list[torch.Tensor] = []
    audit(counted(rounds, Joint(directions=0, batches=40, folds=2)))
    assert len(rounds) == 2
    assert not torch.equal(rounds[0], rounds[1])


def test_a_defense_that_does_not_fit_is_learned_anew() -> None:
    rounds: list[torch.Tensor] = []
    audit(counted(rounds, Forest(trees=2, batches=20), max_bytes=2**14, rounds=1))
    assert len(rounds) == 2  # for training and for the attack
    assert torch.equal(rounds[0], rounds[1])


def test_other_parameters_and_other_processes_learn_anew() -> None:
    rounds: list[torch.Tensor] = []
    stage = counted(rounds, FOREST)
    params = next(trajectory(stage))
    for _ in range(2):
        defense_of_round(stage, 1, params)
    assert len(rounds) == 1
    defense_of_round(stage, 1, {name: leaf + 1 for name, leaf in params.items()})
    assert len(rounds) == 2
    sent_away = pickle.loads(pickle.dumps(stage))
    defense_of_round(sent_away, 1, params)
    assert len(sent_away.defense.learn.rounds) == 3

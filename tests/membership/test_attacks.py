"""Single parts of attacks, against their definitions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.core.checks import InputError
from leakgauge.membership.adversaries.adversary import Labelled, MembershipKnowledge
from leakgauge.membership.adversaries.inputs import Inputs, Reader, Scale
from leakgauge.membership.adversaries.learned import Gradients, LabelLoss
from leakgauge.membership.adversaries.network import AttackNetwork
from leakgauge.membership.adversaries.supervised import Training, fit
from leakgauge.membership.adversaries.thresholds import RMIA, best_cut
from leakgauge.membership.adversaries.unsupervised import features
from leakgauge.membership.catalog import parse_attack
from leakgauge.membership.observation import Observed, observe
from leakgauge.membership.run.federated import raised_rows
from leakgauge.membership.run.roles import assign_roles
from leakgauge.membership.spec import MembershipSpec
from leakgauge.results.roc import auroc
from support.worlds import network, noise, world


def last_layer(of) -> Observed:
    return observe((network(seed=0),), of, layers=["4"])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=12))
def test_the_cut_is_right_as_often_as_any(pairs: list[tuple[int, bool]]) -> None:
    values = np.array([float(value) for value, _ in pairs])
    member = np.array([one for _, one in pairs])
    if member.all() or not member.any():
        return

    def balanced(cut: float) -> float:
        return (values[member] > cut).mean() + (values[~member] <= cut).mean()

    best = max(balanced(cut) for cut in np.arange(-1, 8, 0.5))
    assert balanced(best_cut(values, member)) == pytest.approx(best)


def test_rmia_is_the_share_of_others_with_a_smaller_ratio() -> None:
    one = world(count=200, seed=0, epochs=5, references=3)
    attack = RMIA(references=3)
    known = one.known(attack.needs)
    records = one.seen(one.targets.rows, attack.needs)
    odds = attack.fit(known, seed=0)

    def ratio(seen: Observed, row: int) -> float:
        means = [np.exp(float(loss)) for loss in seen.references[row]]
        outside = sum(means) / len(means)
        return float(np.exp(-np.exp(seen.log_loss[row, -1].item()))) / (
            0.5 * ((1 + attack.a) * outside + (1 - attack.a))
        )

    others = [row for row in range(len(known.fitting.member)) if not known.fitting.member[row]]
    population = [ratio(known.fitting.records, row) for row in others]
    for row in range(0, len(records), 19):
        mine = ratio(records, row)
        share = np.mean([mine >= attack.gamma * other * (1 - 1e-12) for other in population])
        assert odds.score(records)[row] == pytest.approx(share)


def test_a_gradient_component_is_the_convolution_of_the_whole_gradient() -> None:
    data = noise(6, seed=0)
    seen = last_layer(data)
    inputs = Reader(Inputs(layers=1, plain=True), seen)(seen)
    generator = torch.Generator().manual_seed(0)
    made = AttackNetwork(inputs, kernels=5, rate=0.2, generator=generator).eval()
    part = made.of_layers[0]
    task = network(seed=0)
    whole = torch.stack([weight_gradient(task, data, row) for row in range(6)])
    convolved = torch.nn.functional.conv2d(
        whole[:, None], part.kernels.weight[:, None, None], part.kernels.bias
    )
    expected = part.body(convolved[..., 0].permute(0, 2, 1).relu().flatten(1))
    assert torch.allclose(part(inputs, "4"), expected, atol=1e-5)


def weight_gradient(task, data, row: int) -> torch.Tensor:
    task.model.zero_grad()
    task.mean_loss(task.model(data.x[[row]]), data.y[[row]]).backward()
    return dict(task.model.named_parameters())["4.weight"].grad.clone()


def test_the_five_features_are_loss_norm_correctness_confidence_and_uncertainty() -> None:
    data = noise(50, seed=3)
    seen = last_layer(data)
    found = features(seen)
    model = network(seed=0).model.double()
    p = torch.softmax(model(data.x.double()), 1)
    truth = p[torch.arange(50), data.y]
    entropy = -(p * p.log()).sum(1) / np.log(10)
    wanted = torch.stack(
        [
            (-truth.log()).log(),
            seen.log_norm[:, 0],
            (p.argmax(1) == data.y).double(),
            truth,
            entropy,
        ]
    ).T
    standard = (wanted - wanted.mean(0)) / wanted.std(0)
    assert torch.allclose(found, standard.float(), atol=1e-5)


def test_the_papers_encoder_rebuilds_the_features_as_they_are() -> None:
    seen = last_layer(noise(50, seed=3))
    found, scaled = features(seen, plain=True), features(seen)
    assert torch.allclose(found[:, 0], seen.log_loss[:, 0].exp().float())
    assert torch.allclose(found[:, 1], seen.log_norm[:, 0].exp().float())
    assert torch.allclose(scaled[:, 2:], Scale.of(found[:, 2:])(found[:, 2:]), atol=1e-3)
    chosen = parse_attack("spectral:nasr19=1")
    training = chosen.training
    assert (training.kernels, training.epochs, training.lr) == (1000, 100, 1e-4)
    assert (training.paper_weights, chosen.inputs.plain) == (True, True)


@pytest.mark.parametrize(("training", "width"), [(Training(), 64), (Training.nasr19(), 3 * 64)])
def test_a_component_of_the_paper_grows_with_the_snapshots(training: Training, width: int) -> None:
    """Nasr et al., section II-B: the output of a component is T times larger."""
    snapshots = [network(seed=seed) for seed in range(3)]
    records = observe(snapshots, noise(8, seed=0), layers=["4"])
    both = Labelled(records, np.arange(8) % 2 == 0)
    few = replace(training, kernels=2, epochs=1)
    fitted = fit(Inputs(loss=True, layers=1), few, both, both, seed=0)
    assert fitted.network.encoder[0].in_features == 2 * width


def test_a_shadow_attack_may_see_gradients() -> None:
    assert parse_attack("shadow").needs.layers == 0
    assert parse_attack("shadow:layers=1").needs.layers == 1


@pytest.mark.parametrize(("raised", "parts"), [("targets", 2), ("known", 6)])
def test_an_ascent_raises_the_targets_alone_on_request(raised: str, parts: int) -> None:
    spec = MembershipSpec(participants=4, strategy="ascent", targets=20, raised=raised)
    (split, *_) = assign_roles(spec, 1000, None).splits
    rows = raised_rows(spec, split)
    assert len(rows) == len(rows.unique()) == parts * 20
    targets = torch.cat([split.target_members, split.target_non_members])
    assert torch.isin(targets, rows).all()


def test_fewer_targets_leave_a_passive_attacker_its_known_records() -> None:
    """Before, 20 targets left 20 known members of each kind, and the attack learned less."""
    whole = MembershipSpec(participants=4)
    few = replace(whole, targets=20)
    raising = replace(few, strategy="ascent")
    known = {
        name: len(assign_roles(spec, 1000, None).splits[0].known_members)
        for name, spec in (
            ("all", whole),
            ("few", few),
            ("raised", raising),
            ("not raised", replace(raising, raised="targets")),
        )
    }
    assert known["few"] == known["not raised"] == known["all"] > 20
    assert known["raised"] == 20
    assert len(assign_roles(few, 1000, None).splits[0].target_members) == 20


def labelled(count: int) -> MembershipKnowledge:
    records = observe((network(seed=0), network(seed=1)), noise(count, seed=0))
    both = Labelled(records, np.arange(count) % 2 == 0)
    return MembershipKnowledge(both, both, lambda: pytest.fail("no shadow model is needed"))


def seen_hidden(member: np.ndarray, *, seed: int, awake: int = 0) -> Labelled:
    """Return records whose outputs tell members, with a unit that wakes up for the first."""
    rng = np.random.default_rng(seed)
    first = np.clip(np.where(member, 0.95, 0.6) + rng.normal(size=len(member)) / 10, 0.01, 0.99)
    units = np.abs(rng.normal(size=(len(member), 1, 8)))
    units[:, 0, 0] = 0
    units[:awake, 0, 0] = 1.0
    outputs = torch.from_numpy(np.stack([first, 1 - first], axis=1))[:, None]
    labels = torch.zeros(len(member), dtype=torch.int64)
    hidden = {"1": torch.from_numpy(units)}
    return Labelled(Observed(outputs, -outputs[:, :, 0].log(), labels, 2, hidden), member)


@pytest.mark.parametrize("awake", [0, 5])
def test_a_unit_that_the_known_records_never_wake_up_does_not_rule_the_answer(awake: int) -> None:
    member = np.arange(400) % 2 == 0
    known = MembershipKnowledge(
        seen_hidden(member, seed=0), seen_hidden(member, seed=1, awake=awake), lambda: None
    )
    targets = seen_hidden(member, seed=2, awake=awake)
    odds = parse_attack("white-box").fit(known, seed=0).log_odds(targets.records)
    assert ((odds > 0) == member).mean() > 0.9
    assert np.abs(odds).max() < 20


def priced(*, seed: int, unit: float, least: float) -> Labelled:
    """Return records whose labels are numbers of a unit; members have smaller errors."""
    rng = np.random.default_rng(seed)
    member = np.arange(400) % 2 == 0
    label, error = rng.normal(size=400), rng.normal(size=400) * np.where(member, 0.1, 0.5)
    outputs = torch.from_numpy(unit * (label + error) + least)[:, None, None]
    log_loss = torch.from_numpy(np.log((unit * error) ** 2))[:, None]
    labels = torch.from_numpy(unit * label + least)[:, None]
    return Labelled(Observed(outputs, log_loss, labels, 0), member)


@pytest.mark.parametrize(("unit", "least"), [(1e5, 0.0), (1e-4, 0.0), (1.0, 1e4)])
def test_the_unit_of_a_label_that_is_a_number_does_not_matter(unit: float, least: float) -> None:
    found = []
    for scale in ({"unit": unit, "least": least}, {"unit": 1.0, "least": 0.0}):
        known, validation, targets = (priced(seed=seed, **scale) for seed in range(3))
        fitted = parse_attack("label-loss").fit(
            MembershipKnowledge(known, validation, lambda: None), seed=0
        )
        found.append(float(auroc(targets.member, fitted.log_odds(targets.records))))
    assert found[0] == pytest.approx(found[1], abs=0.01)
    assert found[0] > 0.8  # chance is 0.5 within 0.06


def test_attacks_on_single_snapshots_sum_their_log_odds() -> None:
    known = labelled(80)
    attack = LabelLoss(epochs=2, joint=False)
    summed = attack.fit(known, seed=0)
    each = [one.log_odds(known.fitting.records.at(t)) for t, one in enumerate(summed.each)]
    assert len(each) == 2
    assert np.allclose(summed.log_odds(known.fitting.records), each[0] + each[1])


def test_the_epoch_is_the_best_on_validation_records_and_patience_ends_early() -> None:
    one = labelled(120).fitting
    held = Labelled(one.records, ~one.member)  # what is learned is wrong there
    inputs = Inputs(outputs=True, label=True, loss=True)
    short = fit(inputs, Training(epochs=1), one, held, seed=0)
    patient = fit(inputs, Training(epochs=40, patience=5), one, held, seed=0)
    assert np.array_equal(short.log_odds(one.records), patient.log_odds(one.records))


def test_the_preset_of_the_paper_has_its_settings() -> None:
    attack = parse_attack("gradients:nasr19=1")
    training = attack.training
    assert (training.kernels, training.epochs, training.lr) == (1000, 100, 1e-4)
    assert training.patience == 0
    assert training.paper_weights
    assert attack.inputs.plain


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InputError, match="kernels of 'gradients' is -1; expected 0 or more"):
        Gradients(kernels=-1)
    with pytest.raises(InputError, match="did you mean 'gradients'"):
        parse_attack("gradient")
    with pytest.raises(InputError, match="gamma of rmia is 0; expected a number above 0"):
        parse_attack("rmia:gamma=0")

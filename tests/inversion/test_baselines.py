"""Guesses that use no gradient, against brute force; the best of them; the gain over it."""

from dataclasses import replace

import pytest
import torch

from leakgauge.core.types import Dataset
from leakgauge.inversion.checking import check
from leakgauge.inversion.run.answering import rebuild
from leakgauge.inversion.run.attempt import Attempt, attempts_of
from leakgauge.inversion.run.kept import facts_of
from leakgauge.inversion.run.measuring import measurements_of
from leakgauge.inversion.run.preparing import prepare
from leakgauge.inversion.run.rebuilt import Rebuilt
from leakgauge.inversion.run.scenario import Scenario, scenario_of
from leakgauge.inversion.spec import InversionSpec
from leakgauge.inversion.words import CLASS_MEAN, DRAWN, GUESSES, MEAN, NEAREST, PUBLIC
from leakgauge.runs.spec import make_spec
from support.sources import people, pictures, table_source

pytestmark = pytest.mark.usefixtures("few_scales")


def staged(source, **settings) -> tuple[Scenario, Attempt]:
    common = {"data": source.name, "images": 4, "iterations": 2, "draw": "first"}
    spec = make_spec(InversionSpec, {**common, **settings})
    check(spec)
    resolved = prepare(spec, source).spec
    return scenario_of(source, resolved), attempts_of(resolved)[0]


def test_public_records_are_none_of_the_attacked() -> None:
    source = pictures(20)
    scenario, _ = staged(source, net="lenet")
    assert len(scenario.public) == 16
    apart = torch.cdist(scenario.public.x.flatten(1), scenario.x.flatten(1))
    assert float(apart.min()) > 1e-3
    # Labels go with their images: the sample is shuffled.
    whole = scenario.pixels.encode(source.pixels)
    rows = torch.cdist(scenario.public.x.flatten(1), whole.flatten(1)).argmin(1)
    assert (rows % 3).tolist() == scenario.public.y.tolist()
    assert sorted(rows.tolist()) == list(range(4, 20))


def test_guesses_are_those_of_brute_force() -> None:
    scenario, _ = staged(pictures(20), net="lenet")
    truth, labels = scenario.x.view(2, 2, *scenario.x.shape[1:]), scenario.y.view(2, 2)
    found = scenario.baselines.guesses(truth, labels)
    assert tuple(found) == GUESSES
    public = scenario.public
    means = {one: public.x[public.y == one].mean(0) for one in (0, 1, 2)}
    for batch in range(2):
        rows = slice(2 * batch, 2 * batch + 2)
        wanted = torch.stack([means[int(one)] for one in labels[batch]])
        assert _same_set(found[CLASS_MEAN][rows], wanted)
        typical = []
        for one in labels[batch].tolist():
            own = public.x[public.y == one]
            typical.append(own[(own - means[one]).square().flatten(1).sum(1).argmin()])
        assert _same_set(found[PUBLIC][rows], torch.stack(typical))
    for row, record in enumerate(scenario.x):
        far = (public.x - record).square().flatten(1).sum(1)
        assert torch.equal(found[NEAREST][row], public.x[far.argmin()])
    assert torch.equal(found[MEAN][0], scenario.guess)


def _same_set(one, other) -> bool:
    return torch.allclose(one, other) or torch.allclose(one, other.flip(0))


def test_no_guess_but_the_oracle_looks_at_the_truth() -> None:
    scenario, _ = staged(pictures(20), net="lenet")
    truth, labels = scenario.x[:, None], scenario.y[:, None]
    found = scenario.baselines.guesses(truth, labels)
    other = scenario.baselines.guesses(truth.flip(2), labels)
    for name in (MEAN, CLASS_MEAN, PUBLIC):
        assert torch.equal(found[name], other[name])
    assert not torch.equal(found[NEAREST], other[NEAREST])


def test_a_label_that_no_public_record_has_gets_the_mean_of_all() -> None:
    scenario, _ = staged(pictures(20), net="lenet")
    only = scenario.public.y != 1
    lacking = replace(scenario, public=Dataset(scenario.public.x[only], scenario.public.y[only]))
    found = lacking.baselines.guesses(scenario.x[:, None], torch.ones(4, 1, dtype=torch.int64))
    assert torch.equal(found[CLASS_MEAN][0], scenario.guess)
    empty = replace(scenario, public=Dataset(scenario.x[:0], scenario.y[:0]))
    assert list(empty.baselines.guesses(scenario.x[:, None], scenario.y[:, None])) == [MEAN]


def test_the_gain_is_over_the_best_guess_that_can_be_made() -> None:
    blank = torch.zeros(3, 1)
    scores = {
        MEAN: {"psnr": torch.tensor([9.0, 9.0, 9.0])},
        CLASS_MEAN: {"psnr": torch.tensor([10.0, 12.0, 11.0])},
        NEAREST: {"psnr": torch.tensor([19.0, 19.0, 19.0])},
    }
    psnr = {"psnr": torch.tensor([20.0, 20.0, 20.0])}
    played = Rebuilt(blank, blank, psnr, {}, 1.0, baselines=scores)
    assert played.best_guess == CLASS_MEAN
    assert played.gain.tolist() == [10.0, 8.0, 9.0]
    back = Rebuilt.from_arrays(played.to_arrays())
    assert back.best_guess == CLASS_MEAN
    assert set(back.baselines) == set(scores)
    assert back.rounds == {}
    assert Rebuilt(blank, blank, psnr, {}, 1.0).gain is None


@pytest.mark.parametrize("kind", ["images", "epochs", "search", "exact"])
def test_every_attempt_has_its_guesses(kind: str) -> None:
    if kind in ("images", "epochs"):
        more = {"epochs": 2, "batch_size": 2, "rough_iterations": 1} if kind == "epochs" else {}
        scenario, attempt = staged(pictures(20), net="lenet", labels="known", **more)
    else:
        method = "exact" if kind == "exact" else "leakgauge"
        source = table_source(people())
        scenario, attempt = staged(source, label="income", net="mlp", method=method)
    played = rebuild(scenario, attempt)
    wanted = set(GUESSES) - ({CLASS_MEAN} if kind == "exact" else set())
    wanted |= {DRAWN} if scenario.schema is not None else set()
    assert set(played.baselines) == wanted
    facts = facts_of(attempt, played)
    assert set(facts["baselines"]) == wanted
    gains = [one for one in measurements_of(attempt, "d", played) if one.metric == "gain"]
    assert len(gains) == (1 if scenario.pixels is not None else 0)
    for one in gains:
        psnr = facts["baselines"][facts["best_guess"]]["psnr"]["value"]
        value = float(played.scores["psnr"].mean())
        assert one.estimate.value == pytest.approx(value - psnr)
    again = scenario.baselines.guesses(scenario.x[:, None], None)
    assert set(again) == wanted - {CLASS_MEAN}

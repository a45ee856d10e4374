"""A defense of one class, which no other file knows, works wherever defenses do."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.core.types import Grads
from leakgauge.defenses import Chain, Defense, GaussianNoise, Transform, none
from leakgauge.gradients import batch_gradients, params_of
from leakgauge.inference import Forest
from leakgauge.inference.run import audit
from leakgauge.inversion.search.adaptive import RelativeError, adapted, adapts
from leakgauge.inversion.search.objective import SquaredError
from leakgauge.inversion.search.settings import SearchSettings
from leakgauge.privacy.certificates import Release
from leakgauge.training import train_epoch
from leakgauge.training.client import Client
from leakgauge.training.observation import sent_gradients
from leakgauge.training.sending import send
from support.synthetic import records, small_stage, small_task


@dataclass(frozen=True)
class Damped(Transform):
    """Multiplies by a factor and adds Gaussian noise."""

    factor: float
    std: float = 0.0

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        return {name: self._damped(leaf, rngs) for name, leaf in grads.items()}

    def _damped(self, leaf: Tensor, rngs: Sequence[torch.Generator]) -> Tensor:
        rows = [torch.randn(leaf.shape[1:], generator=rng, dtype=leaf.dtype) for rng in rngs]
        return self.factor * leaf + self.std * torch.stack(rows)

    @property
    def noise_variance(self) -> float:
        return self.std**2

    def without_noise(self) -> "Damped":
        return replace(self, std=0.0)

    def adapt(self, objective):
        def compare(guess: Grads, sent: Grads) -> Tensor:
            return objective({name: self.factor * leaf for name, leaf in guess.items()}, sent)

        return compare


@dataclass(frozen=True)
class Shortened(Transform):
    """Clips, in the words of another class than ours."""

    length: float

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        size = sum(leaf.flatten(1).square().sum(1) for leaf in grads.values()).sqrt()
        factor = (self.length / size).clamp(max=1)
        return {k: v * factor.view(-1, *[1] * (v.dim() - 1)) for k, v in grads.items()}

    @property
    def clip_norm(self) -> float:
        return self.length


ON_UPDATE = Defense("damped", update=Damped(0.5))
ON_RECORDS = Defense("damped", per_example=Damped(0.5))
DATA = records(0.0, n=60)
TASK = small_task(DATA)
ROWS = torch.arange(60).reshape(12, 5)


def sent(defense: Defense, max_bytes: int = 2**28) -> dict[str, Tensor]:
    chunks = list(
        sent_gradients(
            TASK,
            params_of(TASK.model),
            DATA,
            ROWS,
            defense=defense,
            noise_seed=3,
            max_bytes=max_bytes,
        )
    )
    return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}


def trained(defense: Defense | None, lr: float) -> dict[str, Tensor]:
    rng = stream(0, "train")
    return train_epoch(
        TASK, params_of(TASK.model), DATA, lr=lr, batch_size=8, rng=rng, defense=defense
    )


@pytest.mark.parametrize("defense", [ON_UPDATE, ON_RECORDS], ids=["update", "records"])
def test_half_of_each_gradient_trains_as_half_the_learning_rate(defense: Defense) -> None:
    for name, leaf in trained(None, 0.1).items():
        torch.testing.assert_close(trained(defense, 0.2)[name], leaf, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("defense", [ON_UPDATE, ON_RECORDS], ids=["update", "records"])
def test_half_of_each_gradient_is_what_is_seen(defense: Defense) -> None:
    plain = sent(none())
    for name, leaf in sent(defense).items():
        torch.testing.assert_close(leaf, plain[name] / 2, rtol=1e-9, atol=1e-12)


def test_noise_per_record_is_averaged_and_independent_of_chunks() -> None:
    noisy = Defense("noisy", per_example=Damped(0.5, std=0.3))
    whole, parts = sent(noisy), sent(noisy, max_bytes=2000)
    clean = sent(ON_RECORDS)
    noise = torch.cat([(whole[name] - clean[name]).flatten() for name in whole])
    # The standard deviation of n normal numbers has the standard error std / sqrt(2 n).
    wanted, error = 0.3 / math.sqrt(5), 0.3 / math.sqrt(5) / math.sqrt(2 * len(noise))
    assert float(noise.std()) == pytest.approx(wanted, abs=5 * error)
    for name, leaf in whole.items():
        assert torch.equal(parts[name], leaf)


def test_another_clipping_class_clips_each_record() -> None:
    each = {name: leaf.flatten(0, 1) for name, leaf in _each_record().items()}
    wanted = {k: v.unflatten(0, (12, 5)).mean(1) for k, v in Shortened(0.1)(each, []).items()}
    for name, leaf in sent(Defense("shortened", Shortened(0.1))).items():
        torch.testing.assert_close(leaf, wanted[name], rtol=1e-9, atol=1e-12)


def test_a_release_is_certified_by_what_its_transforms_say() -> None:
    clipped = Defense("clipped", Shortened(0.1), Chain((GaussianNoise(0.2), Damped(0.5))))
    assert clipped.release == Release(0.1, 0.2)
    # Damped adds noise, but does not say that it passes the gradient on as it was.
    assert replace(clipped, update=Damped(1.0, 0.2)).release is None


def _each_record() -> dict[str, Tensor]:
    x, y = DATA.x[ROWS].flatten(0, 1)[:, None], DATA.y[ROWS].flatten()[:, None]
    grads = batch_gradients(TASK, params_of(TASK.model), x, y)
    return {name: leaf.unflatten(0, (12, 5)) for name, leaf in grads.items()}


@pytest.mark.parametrize("defense", [ON_UPDATE, ON_RECORDS], ids=["update", "records"])
def test_inversion_sees_half_and_who_knows_it_compares_half(defense: Defense) -> None:
    x, y = DATA.x[ROWS], DATA.y[ROWS]
    client = Client(batch_size=5, defense=defense)
    wanted = send(TASK, params_of(TASK.model), x, y, client, seed=0).grads
    clean = batch_gradients(TASK, params_of(TASK.model), x, y)
    static = SquaredError()(clean, wanted)
    assert bool((static > 0).all())
    if defense is ON_UPDATE:
        knowing = adapted(SquaredError(), defense)
        assert bool((knowing(clean, wanted) < 1e-20 * static).all())
        assert adapts(SearchSettings(), defense)


def test_noise_is_weighed_where_a_gradient_keeps_its_size() -> None:
    class Noise(Damped):
        @property
        def keeps_size(self) -> bool:
            return True

        def adapt(self, objective):
            return objective

    assert isinstance(adapted(SquaredError(), Defense("n", update=Noise(1.0, 0.1))), RelativeError)


def test_adversaries_see_through_its_noise() -> None:
    noisy = Defense("noisy", update=Chain((Damped(1.0, 0.3), Damped(1.0, 0.4))))
    assert noisy.noise_std == pytest.approx(0.5)
    assert noisy.without_noise().update == Chain((Damped(1.0), Damped(1.0)))


def test_an_audit_plays_it() -> None:
    data = records(8.0, n=1500)
    kept = audit(small_stage(data, Forest(batches=200), defense=ON_UPDATE, rounds=1, trials=200))
    found = {one.knowledge: one for one in kept if one.metric == "auroc" and one.round == 1}
    assert found["adaptive"].estimate.value > 0.9
    assert {one.defense for one in kept} == {"damped"}

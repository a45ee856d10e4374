"""Estimates on held-out pairs: nothing where nothing is, and much where much is."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError
from leakgauge.core.rng import own_randomness
from leakgauge.results.measurements import HEADLINE, CellContext, Estimate
from leakgauge.tokens.estimation import (
    Information,
    estimate_information,
    mutual_information,
    vectors,
)
from leakgauge.tokens.estimators import estimator
from leakgauge.tokens.fitting import Scaler, TokenCritic, fit
from leakgauge.tokens.networks import Autoencoder, Critic, FlatToken, GradientTransformer, encoder
from leakgauge.tokens.run.measuring import CheckpointFigure
from leakgauge.tokens.run.summarising import summarised
from leakgauge.tokens.settings import CriticSettings
from leakgauge.tokens.sources import (
    FixedPairs,
    Pairs,
    PairSource,
    PairSplit,
    PooledPairs,
    split_pairs,
)
from leakgauge.tokens.spec import TimelineSpec
from leakgauge.tokens.words import CRITICS, ESTIMATORS, TOKENS
from support.gaussians import gaussians

BATCH = 5
QUICK = CriticSettings(
    token="flat",
    iterations=60,
    batch=64,
    group=32,
    evaluated=256,
    check_every=10,
    patience=3,
    lr=3e-3,
)


def records(count: int, *, leak: float, seed: int, scale: float = 1.0) -> Pairs:
    """Gradients of two layers; the first follows the features by a share."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(4, 12, generator=torch.Generator().manual_seed(99)) / 2
    x, one, two = (torch.randn(count, d, generator=generator) for d in (4, 12, 7))
    first = leak * x @ mix + one
    return Pairs(x, {"a": scale * first, "b": scale * two})


def pools(leak: float, *, seed: int = 0, count: int = 1500, scale: float = 1.0) -> PairSplit:
    whole = records(count, leak=leak, seed=seed, scale=scale)
    ends = (0, 3 * count // 5, 4 * count // 5, count)
    return PairSplit(
        *(
            PooledPairs(whole.rows(slice(start, end)), BATCH)
            for start, end in itertools.pairwise(ends)
        )
    )


def figures(found: Information) -> list[float]:
    return [
        *(found.bound.low, found.bound.value, found.bound.high, found.in_sample),
        *(found.critic_gap.value, found.gap_in_sample, found.matched.value, found.mismatched.value),
    ]


@pytest.mark.parametrize(
    "by",
    [
        one if one in ("infonce", "mine") else pytest.param(one, marks=pytest.mark.slow)
        for one in ESTIMATORS
    ],
)
@pytest.mark.parametrize("leak", [0.0, 1.0])
def test_independent_data_give_0_and_planted_data_much(by: str, leak: float) -> None:
    settings = replace(QUICK, estimator=by, lr=1e-3, iterations=80, evaluated=512)
    parts = pools(leak)
    found = estimate_information(parts, settings, seed=1)
    placebo = estimate_information(parts, settings, seed=1, matched=False)
    for one in (placebo, found)[: 1 if leak else 2]:
        assert one.bound.low <= 0 <= one.bound.high
        assert one.critic_gap.low <= 0 <= one.critic_gap.high
        assert one.bound.value < 0.05
    if leak:
        assert found.bound.low > 0.3
        assert found.critic_gap.low > 0.5
        assert found.matched.low > found.mismatched.high
        assert found.iterations > 0


def test_an_interval_ends_at_the_largest_value_of_the_estimator(monkeypatch) -> None:
    """InfoNCE over groups of k cannot exceed log k, however the groups spread."""
    spread = Estimate(1.3, 1.2, 1.6, 9)
    monkeypatch.setattr("leakgauge.tokens.estimation.jackknife", lambda parts, measure: spread)
    found = estimate_information(pools(1.0), replace(QUICK, group=4), seed=0)
    assert (found.bound.low, found.bound.value, found.bound.high) == (1.2, 1.3, math.log(4))
    spec = TimelineSpec(task="mine:build", token=("flat",), estimator=("infonce",))
    cell = CellContext(question="timeline", dataset="", seed=0)
    name = "information: flat, infonce"
    figures = {
        step: [CheckpointFigure(name, spread, adversary="flat, infonce", most=1.65)]
        for step in (0, 1, 2)
    }
    (peak,) = (one for one in summarised(spec, cell, figures, {}) if one.round == HEADLINE)
    assert peak.estimate.low < spread.low
    assert peak.estimate.high == 1.65


def test_the_critic_of_the_placebo_learns_from_the_placebo() -> None:
    """One that learned from matched pairs would be sure of what is wrong."""
    heedless = replace(QUICK, patience=0)
    placebo = estimate_information(pools(1.0), heedless, seed=0, matched=False)
    assert abs(placebo.in_sample) < 0.3
    assert abs(placebo.critic_gap.value) < 0.3
    matched = fit(pools(1.0), heedless, seed=0)
    scores = matched.evaluate(pools(1.0).reporting, torch.Generator().manual_seed(0), matched=False)
    assert float(estimator("infonce").value(scores.parts)) < -0.5


@pytest.mark.parametrize(("token", "critic"), [*zip(TOKENS, CRITICS[::-1], strict=True)])
def test_both_tokens_and_critics_find_a_planted_leak(token: str, critic: str) -> None:
    settings = replace(QUICK, token=token, critic=critic, iterations=40, batch=32, lr=1e-3)
    assert estimate_information(pools(3.0), settings, seed=0).bound.low > 0.2


def test_the_information_of_gaussians_is_found() -> None:
    x, y = gaussians(6000, 2, 1.0, seed=0)
    found = mutual_information(x, y, settings=vectors(iterations=300, group=120, lr=1e-3))
    assert found.bound.value == pytest.approx(1.0, abs=0.2)
    assert found.bound.low <= 1.0
    assert found.bound.n == 1200
    assert found.bound.unit == "nats"
    assert found.limit == math.log(120)
    assert not found.is_limited


def test_the_seed_alone_decides() -> None:
    parts, settings = pools(3.0), replace(QUICK, iterations=20)
    state, numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = figures(estimate_information(parts, settings, seed=3))
    torch.manual_seed(7)
    again = figures(estimate_information(parts, settings, seed=3))
    assert first == again
    assert first != figures(estimate_information(parts, settings, seed=4))
    torch.set_rng_state(state)
    estimate_information(parts, settings, seed=5)
    assert torch.equal(state, torch.get_rng_state())
    assert (numpy == np.random.get_state()[1]).all()  # noqa: NPY002


def test_a_fit_on_the_cpu_leaves_other_devices_alone(monkeypatch) -> None:
    def seeded(_):
        raise AssertionError("the generators of cuda devices were seeded")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded)
    state = torch.get_rng_state()
    with own_randomness(1, "cpu"):
        first = torch.rand(3)
    with own_randomness(1, "cpu"):
        assert torch.equal(first, torch.rand(3))
    assert torch.equal(state, torch.get_rng_state())


def test_a_critic_that_memorises_is_seen_on_held_out_pairs() -> None:
    """Independent pairs that are few: in sample much, held out less than nothing."""
    pairs = records(300, leak=0.0, seed=0)
    parts = split_pairs(pairs)
    heedless = replace(
        QUICK, iterations=150, batch=60, group=16, dropout=0.0, weight_decay=0.0, patience=0
    )
    found = estimate_information(parts, heedless, seed=0)
    assert found.iterations == 150
    assert found.in_sample > 1.5
    assert found.gap_in_sample > 3
    assert found.bound.high < 0
    careful = estimate_information(parts, replace(heedless, patience=4), seed=0)
    assert careful.bound.low <= 0 <= careful.bound.high


def test_an_ignorant_critic_says_0() -> None:
    found = estimate_information(pools(0.0), replace(QUICK, estimator="nwj"), seed=0)
    assert found.iterations == 0
    assert (found.bound.value, found.bound.low, found.critic_gap.value) == (0.0, 0.0, 0.0)
    assert found.critic_gap.low <= 0 <= found.critic_gap.high
    assert found.matched.value == found.mismatched.value == estimator("nwj").start


class Counted:
    """A source that counts its draws."""

    def __init__(self, source: PairSource) -> None:
        self.groups, self.rows, self._draw = source.groups, source.rows, source.draw
        self.draws = 0

    def draw(self, count: int, generator: torch.Generator, *, matched: bool = True) -> Pairs:
        self.draws += 1
        return self._draw(count, generator, matched=matched)


def test_the_critic_is_that_of_the_best_iteration() -> None:
    """A fit that ends there by itself has the same weights."""
    parts = pools(3.0)
    settings = replace(QUICK, iterations=400, check_every=5, patience=2, dropout=0.0, lr=3e-3)
    counted = Counted(parts.fitting)
    found = fit(replace(parts, fitting=counted), settings, seed=0)
    iterations = counted.draws - 1  # one draw is for the scales
    assert found.iterations == iterations - 10 < 390
    short = replace(settings, iterations=found.iterations, patience=0)
    again = fit(parts, short, seed=0)
    own, other = found.networks.state_dict(), again.networks.state_dict()
    assert all(torch.equal(leaf, other[name]) for name, leaf in own.items())
    assert not found.networks.training


def test_figures_are_of_the_parts_that_they_name() -> None:
    """Only the reporting pairs leak, or only the fitting pairs."""
    leaky, other = pools(3.0), pools(0.0)
    mixed = PairSplit(leaky.fitting, leaky.stopping, other.reporting)
    found = estimate_information(mixed, QUICK, seed=0)
    assert found.in_sample > 0.5
    assert found.gap_in_sample > 0.5
    assert found.bound.high < 0.1
    turned = PairSplit(other.fitting, other.stopping, leaky.reporting)
    assert estimate_information(turned, QUICK, seed=0).bound.value < 0.1


def test_raw_gradients_of_a_small_scale_give_about_0() -> None:
    """A critic does not see numbers of a millionth, whatever they tell."""
    parts = pools(3.0, scale=1e-6)
    raw = estimate_information(parts, replace(QUICK, scale="raw"), seed=0)
    standardised = estimate_information(parts, QUICK, seed=0)
    assert abs(raw.bound.value) < 0.01
    assert raw.bound.high < 0.01
    assert standardised.bound.low > 0.5


def test_scales_are_by_the_coordinate() -> None:
    pairs = records(400, leak=1.0, seed=0)
    pairs.gradients["a"][:, 0] = 3.0  # does not vary
    pairs.gradients["b"][0, 0] = 1000.0  # far out
    pairs.gradients["b"][:, 1] *= 100
    made = Scaler.of(pairs, raw=False)(pairs)
    for before, after in (
        (pairs.features, made.features),
        (pairs.gradients["b"], made.gradients["b"]),
    ):
        values = before.double().numpy()
        known = np.clip((values - values.mean(0)) / values.std(0, ddof=1), -5, 5)
        np.testing.assert_allclose(after, known, atol=1e-5)
    assert made.gradients["a"][:, 0].unique().tolist() == [0.0]
    raw = Scaler.of(pairs, raw=True)(pairs)
    assert torch.equal(raw.gradients["b"], pairs.gradients["b"])
    assert float(raw.gradients["b"].max()) == 1000.0
    assert torch.equal(raw.features, made.features)


def test_an_estimate_at_the_end_of_its_sample_is_called_limited() -> None:
    x, _ = gaussians(1500, 6, 1.0, seed=0)
    found = mutual_information(x, x, settings=vectors(iterations=150, group=8, lr=1e-3))
    assert found.bound.value > 0.9 * math.log(8)
    assert found.limit == math.log(8)
    assert found.is_limited


def test_the_limit_is_that_of_the_groups_that_were_used() -> None:
    """Pairs that share records in blocks of six make groups of six, whatever was asked."""
    pairs = records(300, leak=0.0, seed=0)
    same = Pairs(pairs.features, {"a": pairs.features.clone()})
    parts = PairSplit(
        FixedPairs(same.rows(slice(0, 180))),
        *(FixedPairs(same.rows(slice(at, at + 60)), block=6) for at in (180, 240)),
    )
    found = estimate_information(parts, vectors(iterations=150, group=64, lr=1e-3), seed=0)
    assert found.limit == math.log(6)
    assert found.is_limited
    assert found.bound.n == 60


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    bad = x.clone()
    bad[13, 1] = value
    for one, other in ((bad, x), (x, bad)):
        with pytest.raises(InputError, match=r"^a value is not finite; leave out its row$"):
            mutual_information(one, other)
        parts = split_pairs(Pairs(one, {"a": other}))
        with pytest.raises(InputError, match=r"^a feature or a gradient of a batch is not finite"):
            estimate_information(parts, QUICK, seed=0)


def test_shapes_and_too_few_pairs_are_refused_in_one_line() -> None:
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(InputError, match=r"^x is \[200, 2\], y is \[199, 2\]; expected \[N, a\]"):
        mutual_information(x, x[1:])
    with pytest.raises(InputError, match=r"^x is \[200\], y is \[200, 2\]; expected"):
        mutual_information(x[:, 0], x)
    parts = split_pairs(Pairs(x, {"a": x}))
    counted = Counted(parts.fitting)
    for patience in (0, 8):
        with pytest.raises(InputError, match=r"make 0 groups of 64; expected 3 or more: bring"):
            estimate_information(
                replace(parts, fitting=counted), vectors(group=64, patience=patience), seed=0
            )
    assert counted.draws == 0  # it is said before the fit


def test_inputs_are_dropped_in_the_fit_alone() -> None:
    pairs = records(64, leak=1.0, seed=0)
    with own_randomness(0, "cpu"):
        judge = TokenCritic(pairs, replace(QUICK, token="flat", dropout=0.5))
        nn.init.ones_(judge.critic.head.scale)
        first, second = judge(pairs)[0], judge(pairs)[0]
        assert not torch.equal(first, second)
        judge.eval()
        assert torch.equal(judge(pairs)[0], judge(pairs)[0])


@pytest.mark.parametrize("kind", CRITICS)
def test_critics_begin_constant(kind: str) -> None:
    with own_randomness(0, "cpu"):
        critic = Critic(3, 4, kind=kind, start=1.0)
        scores = critic(torch.randn(5, 3), torch.randn(6, 4))
    assert scores.shape == (5, 6)
    assert scores.unique().tolist() == [1.0]


def test_the_critic_of_the_paper_has_two_layers_on_both_embeddings_side_by_side() -> None:
    with own_randomness(0, "cpu"):
        critic = Critic(3, 4, kind="concat", start=0.5)
        nn.init.normal_(critic.head.last.weight)
        x, t = torch.randn(5, 3), torch.randn(6, 4)
    head = critic.head
    layer = torch.cat([head.left.weight, head.right.weight], 1)
    assert layer.shape == (128, 256)
    with torch.no_grad():
        for i in range(5):
            for j in range(6):
                both = torch.cat([critic.of_features(x[i]), critic.of_tokens(t[j])])
                hidden = torch.relu(layer @ both + head.left.bias)
                score = head.last.weight @ hidden + 0.5
                torch.testing.assert_close(critic(x, t)[i, j], score[0], rtol=1e-4, atol=1e-5)


def test_the_separable_critic_is_a_scaled_inner_product() -> None:
    with own_randomness(0, "cpu"):
        critic = Critic(3, 4, start=0.0)
        x, t = torch.randn(5, 3), torch.randn(6, 4)
    with torch.no_grad():
        critic.head.scale.fill_(0.3)
        known = 0.3 * 10 / math.sqrt(128) * critic.of_features(x) @ critic.of_tokens(t).T
        torch.testing.assert_close(critic(x, t), known)


def given(sizes: tuple[int, ...], count: int = 6) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {str(size): torch.randn(count, size, generator=generator) for size in sizes}


def widths(module: nn.Module) -> list[tuple[int, int]]:
    return [(m.in_features, m.out_features) for m in module if isinstance(m, nn.Linear)]


@pytest.mark.parametrize("relu", [False, True])
def test_the_autoencoder_has_two_layers_each_way(*, relu: bool) -> None:
    with own_randomness(0, "cpu"):
        coder = encoder("autoencoder", [20, 30], relu_output=relu)
    assert isinstance(coder, Autoencoder)
    assert widths(coder.encoder) == [(50, 512), (512, 128)]
    assert widths(coder.decoder) == [(128, 512), (512, 50)]
    gradients = given((20, 30))
    whole = torch.cat(list(gradients.values()), 1)
    token, loss = coder(gradients)
    rebuilt = coder.decoder(coder.encoder(whole))
    assert token.shape == (6, coder.length) == (6, 128)
    assert torch.equal(token, coder.encoder(whole))
    torch.testing.assert_close(loss, ((rebuilt - whole) ** 2).mean())
    assert bool((rebuilt >= 0).all()) is relu
    loss.backward()
    assert all(leaf.grad is not None and leaf.grad.any() for leaf in coder.parameters())


def test_the_transformer_is_that_of_the_appendix() -> None:
    with own_randomness(0, "cpu"):
        token_of = encoder("transformer", [20, 30, 5])
    assert isinstance(token_of, GradientTransformer)
    assert widths(token_of.maps) == [(20, 512), (30, 512), (5, 512)]
    mixer = token_of.mixer
    assert mixer.self_attn.num_heads == 8
    assert (mixer.linear1.out_features, mixer.dropout.p) == (2048, 0.1)
    gradients = given((20, 30, 5))
    with torch.no_grad():
        token, loss = token_of.eval()(gradients)
        mapped = [one(leaf) for one, leaf in zip(token_of.maps, gradients.values(), strict=True)]
        known = torch.cat([*mixer(torch.stack(mapped, 1)).unbind(1)], 1)
        assert token.shape == (6, token_of.length) == (6, 3 * 512)
        torch.testing.assert_close(token, known)
        assert float(loss) == 0.0
        moved = {**gradients, "5": gradients["5"] + 1}
        assert (token_of(moved)[0] - token)[:, :512].abs().max() > 0  # layers see each other


def test_no_encoder_leaves_gradients_as_they_are() -> None:
    gradients = given((2, 3))
    token, loss = FlatToken([2, 3])(gradients)
    assert torch.equal(token, torch.cat(list(gradients.values()), 1))
    assert float(loss) == 0.0
    with pytest.raises(InputError, match="token is 'transfomer'; did you mean 'transformer'"):
        encoder("transfomer", [2])


def test_the_settings_of_the_paper() -> None:
    paper = CriticSettings.paper("transformer", pairs=500)
    assert (paper.estimator, paper.critic, paper.scale) == ("mine", "concat", "raw")
    assert (paper.token, paper.relu_output, paper.patience) == ("transformer", True, 0)
    assert (paper.iterations, paper.batch, paper.dropout) == (200, 50, 0.0)
    assert paper.token_lr == CriticSettings.paper("autoencoder").token_lr == 0.2 * paper.lr
    assert CriticSettings(token="autoencoder").token_lr == paper.lr  # ours
    assert CriticSettings.paper(pairs=5).batch == 2
    found = estimate_information(
        split_pairs(records(500, leak=0.0, seed=0)),
        replace(CriticSettings.paper(), group=20),
        seed=0,
    )
    assert found.iterations == 200


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("estimator", "nce", "estimator is 'nce'"),
        ("critic", "joint", "critic is 'joint'"),
        ("scale", "rau", "scale is 'rau'; did you mean 'raw'"),
        ("batch", 1, "batch is 1; a pair is compared with others"),
        ("group", 1, "group is 1; a pair is compared with others"),
        ("iterations", 0, "iterations is 0; expected a whole number"),
        ("lr", 0.0, "lr is 0; expected a number above 0"),
        ("dropout", 1.0, "dropout is 1; expected 0 to below 1"),
    ],
)
def test_settings_out_of_range_are_refused_in_one_line(name, value, message) -> None:
    with pytest.raises(InputError, match=message):
        CriticSettings(**{name: value})

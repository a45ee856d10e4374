"""Fits a critic and its token on pairs, and stops it by others."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.core.checks import require
from leakgauge.core.rng import derive, torch_stream
from leakgauge.results.statistics import student_t
from leakgauge.tokens.estimators import Estimator, critic_gap, estimator, jackknife
from leakgauge.tokens.networks import Critic, encoder
from leakgauge.tokens.settings import CriticSettings
from leakgauge.tokens.sources import Pairs, PairSource, PairSplit
from leakgauge.tokens.words import RAW

SCALED_ON = 1024
"""Pairs by which coordinates are standardised, at most."""

CLIP = 5.0
"""Standardised coordinates end here: gradients have heavy tails."""


@dataclass(frozen=True, eq=False)
class Scaler:
    """Standardises features and gradients by coordinate.

    Attributes:
        mean: of each coordinate.
        deviation: of each; 1 where a coordinate does not vary.
        clip: gradients end here; infinity where they are raw.
    """

    mean: Pairs
    deviation: Pairs
    clip: float = CLIP

    @classmethod
    def of(cls, pairs: Pairs, *, raw: bool) -> "Scaler":
        """Return the scaler of some pairs; a raw one changes the features alone."""
        ends = [_ends(leaf) for leaf in pairs.gradients.values()]
        if raw:
            ends = [(torch.zeros_like(mean), torch.ones_like(mean)) for mean, _ in ends]
        mean, deviation = _ends(pairs.features)
        return cls(
            Pairs(mean, dict(zip(pairs.gradients, [one for one, _ in ends], strict=True))),
            Pairs(deviation, dict(zip(pairs.gradients, [one for _, one in ends], strict=True))),
            math.inf if raw else CLIP,
        )

    def __call__(self, pairs: Pairs) -> Pairs:
        """Return the standardised pairs."""
        mean, deviation = self.mean.gradients, self.deviation.gradients
        scaled = {
            name: _scaled(leaf, mean[name], deviation[name], self.clip)
            for name, leaf in pairs.gradients.items()
        }
        features = _scaled(pairs.features, self.mean.features, self.deviation.features, CLIP)
        return Pairs(features, scaled)


class TokenCritic(nn.Module):
    """A token's network and a critic.

    Args:
        like: standardised pairs.
        settings: kinds of both.
    """

    def __init__(self, like: Pairs, settings: CriticSettings) -> None:
        super().__init__()
        sizes = [leaf.shape[1] for leaf in like.gradients.values()]
        self.token = encoder(settings.token, sizes, relu_output=settings.relu_output)
        self.critic = Critic(
            like.features.shape[1],
            int(self.token.length),  # type: ignore[arg-type]
            kind=settings.critic,
            start=estimator(settings.estimator).start,
        )
        self.dropout = settings.dropout

    def forward(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Return the scores ``[K, K]`` and what the token's network adds to the loss."""
        features, gradients = pairs.features, pairs.gradients
        if self.training and self.dropout:
            features = functional.dropout(features, self.dropout)
            gradients = {n: functional.dropout(g, self.dropout) for n, g in gradients.items()}
        token, beside = self.token(gradients)
        scores: Tensor = self.critic(features, token)
        return scores, beside


@dataclass(frozen=True, eq=False)
class CriticScores:
    """What a critic says of blocks of groups.

    Attributes:
        parts: of the estimator, by block ``[G, 2]``.
        gaps: mean matched and mismatched score, by block ``[G, 2]``.
        pairs: how many they are computed from.
        group: pairs of the largest group.
    """

    parts: Tensor
    gaps: Tensor
    pairs: int
    group: int


@dataclass(frozen=True, eq=False)
class FittedCritic:
    """A critic after its last, or its best iteration.

    Attributes:
        judge: the networks.
        scaler: of its inputs.
        iterations: at which the stopping pairs were best; 0 where the constant critic was.
        settings: of the fit.
    """

    judge: TokenCritic
    scaler: Scaler
    iterations: int
    settings: CriticSettings

    def judged(
        self, source: PairSource, generator: torch.Generator, *, matched: bool = True
    ) -> CriticScores:
        """Return what the critic says of a source's groups."""
        return _judged(self.judge, self.scaler, self.settings, source, generator, matched)


def fit(
    parts: PairSplit,
    settings: CriticSettings,
    *,
    seed: int,
    matched: bool = True,
    device: torch.device | str = "cpu",
) -> FittedCritic:
    """Fit a critic and its token together.

    Args:
        parts: the pairs.
        settings: of the estimate.
        seed: draws weights, batches and dropout; torch's global generator is left as it was.
        matched: False fits on the placebo.
        device: where torch computes.

    Raises:
        InputError: a feature or a gradient is not finite.
    """
    draws = torch_stream(seed, "draws")
    sample = parts.fitting.draw(SCALED_ON, draws, matched=matched)
    require(
        all(bool(leaf.isfinite().all()) for leaf in (sample.features, *sample.gradients.values())),
        "a feature or a gradient of a batch is not finite; leave out such batches, or take a "
        "checkpoint from before the training diverged",
    )
    scaler = Scaler.of(sample.to(device), raw=settings.scale == RAW)
    measure = estimator(settings.estimator)
    with own_randomness(derive(seed, "critic"), device):
        judge = TokenCritic(scaler(sample.rows(slice(0, 2)).to(device)), settings).to(device)
        rates = [(judge.token, settings.token_lr), (judge.critic, settings.lr)]
        optimizer = torch.optim.AdamW(
            [{"params": [*one.parameters()], "lr": lr} for one, lr in rates if _has_weights(one)],
            weight_decay=settings.weight_decay,
            fused=True,  # a third of the time of a step otherwise
        )
        keeper = _Keeper(judge, measure)
        for iteration in range(1, settings.iterations + 1):
            drawn = parts.fitting.draw(settings.batch, draws, matched=matched)
            scores, beside = judge(scaler(drawn.to(device)))
            optimizer.zero_grad()
            (beside - measure.objective(scores)).backward()
            optimizer.step()
            if settings.patience and iteration % settings.check_every == 0:
                seen = _judged(
                    judge, scaler, settings, parts.stopping, torch_stream(seed, "stop"), matched
                )
                if keeper.waited(seen, iteration) >= settings.patience:
                    break
        iterations = keeper.restore() if settings.patience else settings.iterations
    judge.eval()
    return FittedCritic(judge, scaler, iterations, settings)


@contextmanager
def own_randomness(seed: int, device: torch.device | str) -> Iterator[None]:
    """Seed torch's global generators inside the block, and restore them after it.

    Weights and dropout of torch's own modules draw from these alone. Generators of other devices
    stay as they are, which ``torch.manual_seed`` would seed, too.
    """
    where = torch.device(device)
    on_cuda = where.type == "cuda"
    with torch.random.fork_rng([where] if on_cuda else []):
        torch.default_generator.manual_seed(seed)
        if on_cuda:
            with torch.cuda.device(where):
                torch.cuda.manual_seed(seed)
        yield


class _Keeper:
    """Keeps the weights of the best iteration."""

    def __init__(self, judge: TokenCritic, measure: Estimator) -> None:
        self._judge, self._measure = judge, measure
        self._best = -float("inf")
        self._at, self._since, self._error = 0, 0, 0.0
        self._weights: Mapping[str, Tensor] = {}

    def waited(self, seen: CriticScores, iteration: int) -> int:
        """Return for how many looks no value was better."""
        self._since += 1
        one = jackknife(seen.parts, self._measure)
        if one.value > self._best:
            self._best, self._since, self._at = one.value, 0, iteration
            self._error = (one.high - one.value) / student_t(max(1, len(seen.parts) - 1))
            self._weights = {n: leaf.clone() for n, leaf in self._judge.state_dict().items()}
        return self._since

    def restore(self) -> int:
        """Return to the best weights; return their iteration, or 0 for ignorance.

        Of many looks the best one is above 0 by chance, so it must be so by a standard error.
        """
        if self._weights:
            self._judge.load_state_dict(self._weights)
        return self._at if self._best > self._error else 0


def _judged(
    judge: TokenCritic,
    scaler: Scaler,
    settings: CriticSettings,
    source: PairSource,
    generator: torch.Generator,
    matched: bool,
) -> CriticScores:
    measure, device = estimator(settings.estimator), next(judge.parameters()).device
    was, sizes = judge.training, [0]
    judge.eval()
    parts, gaps = [], []
    with torch.no_grad():
        for block in source.groups(settings.group, settings.evaluated, generator, matched=matched):
            scores = [judge(scaler(one.to(device)))[0] for one in block]
            parts.append(_merged([measure.parts(one) for one in scores], measure))
            gaps.append(torch.stack([critic_gap(one) for one in scores]).mean(0))
            sizes += map(len, block)
    judge.train(was)
    return CriticScores(torch.stack(parts).cpu(), torch.stack(gaps).cpu(), sum(sizes), max(sizes))


def _merged(parts: list[Tensor], measure: Estimator) -> Tensor:
    """Return the parts of a block from those of its groups: the second part is a log mean."""
    both = torch.stack(parts)
    logs = both[:, 1]
    return torch.stack(
        [both[:, 0].mean(), logs.logsumexp(0) - torch.log(logs.new_tensor(len(logs)))]
    )


def _ends(values: Tensor) -> tuple[Tensor, Tensor]:
    mean, deviation = values.mean(0), values.std(0)
    return mean, torch.where(deviation > 0, deviation, torch.ones_like(deviation))


def _scaled(values: Tensor, mean: Tensor, deviation: Tensor, clip: float) -> Tensor:
    return ((values - mean) / deviation).clamp(-clip, clip)


def _has_weights(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())

"""Fits a critic and its token on pairs, and stops the fit by other pairs."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.core.checks import require
from leakgauge.core.rng import derive, own_randomness, torch_stream
from leakgauge.results.statistics import student_t
from leakgauge.tokens.estimators import Estimator, critic_gap, estimator, jackknife
from leakgauge.tokens.networks import Critic, encoder
from leakgauge.tokens.settings import CriticSettings
from leakgauge.tokens.sources import Pairs, PairSource, PairSplit
from leakgauge.tokens.words import RAW

SCALED_ON = 1024
"""Largest number of pairs used to standardise coordinates."""

KEPT = 2**28
"""Largest size in bytes of the stopping pairs that are kept, and not drawn for each check."""

CLIP = 5.0
"""Largest absolute standardised coordinate, as gradients have heavy tails."""


@dataclass(frozen=True, eq=False)
class Scaler:
    """Standardises features and gradients by coordinate.

    Attributes:
        mean: mean of each coordinate.
        deviation: standard deviation of each coordinate; 1 for a constant coordinate.
        clip: largest absolute value of a scaled gradient; infinity for raw ones.
    """

    mean: Pairs
    deviation: Pairs
    clip: float = CLIP

    @classmethod
    def of(cls, pairs: Pairs, *, raw: bool) -> "Scaler":
        """Return the scaler of some pairs; a raw one changes only the features."""
        mean, deviation = pairs.map(lambda leaf: leaf.mean(0)), pairs.map(_deviation)
        if not raw:
            return cls(mean, deviation)
        no_shift, no_scale = mean.map(torch.zeros_like), mean.map(torch.ones_like)
        mean = replace(mean, gradients=no_shift.gradients)
        deviation = replace(deviation, gradients=no_scale.gradients)
        return cls(mean, deviation, math.inf)

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
    """An encoder of tokens and a critic.

    Args:
        like: standardised pairs.
        settings: settings that name both.
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
        """Return the scores ``[K, K]``, and the encoder's own loss."""
        features, gradients = pairs.features, pairs.gradients
        if self.training and self.dropout:
            features = functional.dropout(features, self.dropout)
            gradients = {n: functional.dropout(g, self.dropout) for n, g in gradients.items()}
        token, encoder_loss = self.token(gradients)
        scores: Tensor = self.critic(features, token)
        return scores, encoder_loss


@dataclass(frozen=True, eq=False)
class CriticScores:
    """A critic's figures for blocks of groups.

    Attributes:
        parts: parts of the estimator, by block ``[G, 2]``.
        gaps: mean matched and mismatched score, by block ``[G, 2]``.
        pairs: number of pairs.
        group: number of pairs in the largest group.
    """

    parts: Tensor
    gaps: Tensor
    pairs: int
    group: int


@dataclass(frozen=True, eq=False)
class FittedCritic:
    """A critic after its last or its best iteration.

    Attributes:
        networks: encoder and critic.
        scaler: scaler of their inputs.
        iterations: iteration with the best stopping figure; 0 if a constant critic was better.
        settings: settings of the fit.
    """

    networks: TokenCritic
    scaler: Scaler
    iterations: int
    settings: CriticSettings

    def evaluate(
        self, source: PairSource, generator: torch.Generator, *, matched: bool = True
    ) -> CriticScores:
        """Return the critic's figures for a source's groups."""
        return self.judge(self.drawn(source, generator, matched=matched))

    def drawn(
        self, source: PairSource, generator: torch.Generator, *, matched: bool = True
    ) -> Iterator[list[Pairs]]:
        """Yield blocks of a source's groups of pairs, standardised."""
        settings, device = self.settings, next(self.networks.parameters()).device
        groups = source.groups(settings.group, settings.evaluated, generator, matched=matched)
        for block in groups:
            yield [self.scaler(one.to(device)) for one in block]

    def judge(self, blocks: Iterable[list[Pairs]]) -> CriticScores:
        """Return the critic's figures for blocks of groups of standardised pairs."""
        networks, measure = self.networks, estimator(self.settings.estimator)
        was, sizes = networks.training, [0]
        networks.eval()
        parts, gaps = [], []
        with torch.no_grad():
            for block in blocks:
                scores = [networks(one)[0] for one in block]
                parts.append(_merged([measure.parts(one) for one in scores]))
                gaps.append(torch.stack([critic_gap(one) for one in scores]).mean(0))
                sizes += map(len, block)
        networks.train(was)
        whole = torch.stack(parts).cpu(), torch.stack(gaps).cpu()
        return CriticScores(*whole, sum(sizes), max(sizes))


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
        parts: pairs of the three parts.
        settings: settings of the estimate.
        seed: seed of weights, batches and dropout; torch's global generator is restored.
        matched: False fits on the placebo.
        device: device of the computation.

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
        networks = TokenCritic(scaler(sample.rows(slice(0, 2)).to(device)), settings).to(device)
        rates = [(networks.token, settings.token_lr), (networks.critic, settings.lr)]
        optimizer = torch.optim.AdamW(
            [{"params": own, "lr": lr} for one, lr in rates if (own := [*one.parameters()])],
            weight_decay=settings.weight_decay,
            fused=True,  # saves a third of a step's time
        )
        keeper = _Keeper(networks, measure)
        stopping: list[list[Pairs]] = []
        for iteration in range(1, settings.iterations + 1):
            drawn = parts.fitting.draw(settings.batch, draws, matched=matched)
            scores, encoder_loss = networks(scaler(drawn.to(device)))
            optimizer.zero_grad()
            (encoder_loss - measure.objective(scores)).backward()
            optimizer.step()
            if settings.patience and iteration % settings.check_every == 0:
                now = FittedCritic(networks, scaler, iteration, settings)
                rng = torch_stream(seed, "stop")
                judged = stopping or now.drawn(parts.stopping, rng, matched=matched)
                if settings.evaluated * drawn.bytes_of_each <= KEPT:
                    judged = stopping = [*judged]  # every check judges the same pairs
                if keeper.waited(now.judge(judged), iteration) >= settings.patience:
                    break
        iterations = keeper.restore() if settings.patience else settings.iterations
    networks.eval()
    return FittedCritic(networks, scaler, iterations, settings)


class _Keeper:
    """Keeps the weights of the best iteration."""

    def __init__(self, networks: TokenCritic, measure: Estimator) -> None:
        self._networks, self._measure = networks, measure
        self._best = -float("inf")
        self._at, self._since, self._error = 0, 0, 0.0
        self._weights: Mapping[str, Tensor] = {}

    def waited(self, seen: CriticScores, iteration: int) -> int:
        """Return the number of checks since the best value."""
        self._since += 1
        one = jackknife(seen.parts, self._measure)
        if one.value > self._best:
            self._best, self._since, self._at = one.value, 0, iteration
            self._error = (one.high - one.value) / student_t(max(1, len(seen.parts) - 1))
            self._weights = {n: leaf.clone() for n, leaf in self._networks.state_dict().items()}
        return self._since

    def restore(self) -> int:
        """Restore the best weights, and return their iteration, or 0 for a constant critic.

        The best of many checks is above 0 by chance, so it must exceed 0 by a standard error.
        """
        if self._weights:
            self._networks.load_state_dict(self._weights)
        return self._at if self._best > self._error else 0


def _merged(parts: list[Tensor]) -> Tensor:
    """Return the parts of a block from those of its groups; the second part is a log mean."""
    first, logs = torch.stack(parts).T
    log_mean = logs.logsumexp(0) - torch.log(logs.new_tensor(len(logs)))
    return torch.stack([first.mean(), log_mean])


def _deviation(values: Tensor) -> Tensor:
    deviation = values.std(0)
    return torch.where(deviation > 0, deviation, torch.ones_like(deviation))


def _scaled(values: Tensor, mean: Tensor, deviation: Tensor, clip: float) -> Tensor:
    return ((values - mean) / deviation).clamp(-clip, clip)

"""Audits client-level differential privacy of a Flower federation with planted clients."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from leakgauge.core.checks import require, require_positive
from leakgauge.core.extras import not_installed
from leakgauge.integrations.flower_canaries import CanaryClients, model_of
from leakgauge.integrations.flower_round import HeardRound, RoundsSeen
from leakgauge.integrations.flower_wrapped import WrappedStrategy
from leakgauge.integrations.released_models import flat, names_of
from leakgauge.privacy.conformance import FAILS_BY_CHANCE, conformance_of
from leakgauge.privacy.dp_audit import DpAudit
from leakgauge.privacy.planted_clients import PlantedScores, audit_planted, claim_of_clients
from leakgauge.privacy.profile import Profile
from leakgauge.results.statistics import Floats

try:
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy
except ImportError as error:
    raise not_installed("flwr", "flower") from error

ALIKE = 0.5
"""Cosine from which a reply is that of a planted client; by chance it is about 1 / sqrt(size)."""


class CanaryAudit(WrappedStrategy):
    """Reads what planted clients reveal: ``CanaryAudit(strategy, CanaryClients([0, 1, 2]))``.

    It stands directly around a strategy of Flower for differential privacy, with fixed or adaptive
    clipping, on the server or on clients. Everything is delegated to that strategy; the training is
    the same as without the audit. Give the same ``CanaryClients`` to the client app.

    The auditor sees the updates that are averaged and their mean, so that it knows the noise
    exactly. Differential privacy assumes an attacker who knows all other clients.

    Args:
        strategy: to audit.
        canaries: planted clients; the mod of the client app.
        noise_multiplier: what the noise was stated to be; None takes the strategy's.

    Attributes:
        scores: scores of planted clients.
        noise: stated noise of the sum of the updates, in clips.
        clips: norm to which updates were clipped, by round.

    Raises:
        InputError: the strategy is none of Flower's for differential privacy, or adds no noise.
    """

    def __init__(
        self,
        strategy: Strategy,
        canaries: CanaryClients,
        *,
        noise_multiplier: float | None = None,
    ) -> None:
        super().__init__(strategy, "give the released models to audit_models")
        for name in ("noise_multiplier", "clipping_norm", "num_sampled_clients", "strategy"):
            require(
                hasattr(strategy, name),
                f"{type(strategy).__name__} has no {name}; expected a strategy of Flower for "
                "differential privacy, such as DifferentialPrivacyServerSideFixedClipping, "
                "directly inside CanaryAudit",
            )
        self.canaries = canaries
        self._private: Any = strategy  # has a clip, which Strategy does not declare
        self.noise, self._mu = stated_noise(strategy, noise_multiplier)
        self._base: ArrayRecord | None = None
        self._clip = 0.0
        self.clips: list[float] = []
        self.scores = PlantedScores()
        self._seen = RoundsSeen(self.noise, canaries.seed)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the wrapped strategy, and remember the model and the clip."""
        self._base, self._clip = arrays, float(self._private.clipping_norm)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the strategy's release, and read it."""
        received, base = list(replies), self._base
        assert base is not None, "a round is configured before it is aggregated"
        directions, who = self._planted(server_round, base, received)
        with _listening(self._private.strategy) as heard:
            released, metrics = super().aggregate_train(server_round, received)
        if released is not None and heard:
            self._add(HeardRound(base, *heard[-1], released), directions, who)
        return released, metrics

    def claim(self, delta: float) -> Profile:
        """Return what the stated noise promises for the rounds so far.

        Args:
            delta: delta of the reported epsilons; in (0, 1).
        """
        require(self.scores.rounds > 0, "no round was audited; start the CanaryAudit")
        return claim_of_clients(self._mu, self.scores.rounds, delta)

    def result(
        self, *, delta: float, confidence: float = 0.99, claim: Profile | None = None
    ) -> DpAudit:
        """Return what planted clients show against the claim.

        Args:
            delta: delta of the reported epsilons; in (0, 1).
            confidence: probability that a true claim is not refuted.
            claim: claim for a client that is in all rounds, in place of the strategy's.

        Raises:
            InputError: no round was audited, or no planted client took part in one.
        """
        found = claim or self.claim(delta)
        checks = [self.scores.check(), *self._seen.checks()]
        checked = conformance_of(checks, FAILS_BY_CHANCE * (1 - confidence), self._seen.unseen)
        return audit_planted(self.scores, found, confidence=confidence, conformance=checked)

    def _planted(
        self, number: int, base: ArrayRecord, received: list[Message]
    ) -> tuple[Floats, dict[int, int]]:
        """Return the directions of a round, and the planted client of each node that sent one."""
        names = names_of(base)
        start = flat(base, names)
        directions = self.canaries.planted.directions(number, len(start))
        who = {}
        for one in received:
            if not one.has_error():
                update = flat(model_of(one), names) - start
                alike = directions @ update / max(float(np.linalg.norm(update)), 1e-300)
                if alike.max() > ALIKE and self.canaries.planted.members[int(alike.argmax())]:
                    who[one.metadata.src_node_id] = int(alike.argmax())
        return directions, who

    def _add(self, heard: HeardRound, directions: Floats, who: dict[int, int]) -> None:
        scale = float(self._private.num_sampled_clients) / self._clip
        present = np.isin(np.arange(len(directions)), list(who.values()))
        parts = heard.parts(directions, who)
        self.clips.append(self._clip)
        noise = scale * heard.noise
        inner = type(self._private.strategy).__name__
        clients = int(self._private.num_sampled_clients)
        self._seen.add(heard, noise, clip=self._clip, clients=clients, inner=inner)
        self.scores.add(
            scale * (heard.released - heard.start) if parts is None else noise,
            directions,
            present,
            noise=self.noise,
            parts=None if parts is None else scale * parts,
        )


def stated_noise(strategy: Any, noise_multiplier: float | None) -> tuple[float, float]:
    """Return the noise of the updates, in clips, and the mu of one round.

    Where the clip adapts, a part of the privacy pays for the noisy count of clipped updates, with a
    standard deviation of ``b``: ``mu^2 = 1 / noise^2 + 1 / (2 b)^2``.

    Args:
        strategy: of Flower, for differential privacy.
        noise_multiplier: stated noise multiplier of both; None takes the strategy's.

    Raises:
        InputError: there is no noise.

    References:
        Andrew et al., Differentially Private Learning with Adaptive Clipping, NeurIPS 2021.
    """
    count = getattr(strategy, "clipped_count_stddev", None)
    of_count = 0.0 if not count else 1 / (2 * float(count))
    if noise_multiplier is not None:
        require_positive(noise_multiplier, "stated noise multiplier")
        require(
            noise_multiplier * of_count < 1,
            f"stated noise multiplier is {noise_multiplier:g}, which the noisy count of clipped "
            f"updates alone exceeds; expected less than {1 / max(of_count, 1e-300):g}",
        )
        noise = (noise_multiplier**-2 - of_count**2) ** -0.5
    else:
        noise = float(strategy.noise_multiplier)
        require_positive(noise, f"noise multiplier of {type(strategy).__name__}")
    return noise, math.hypot(1 / noise, of_count)


@contextmanager
def _listening(strategy: Any) -> Iterator[list[tuple[list[Message], ArrayRecord, str]]]:
    """Note what a strategy aggregates, and the result; the strategy is unchanged afterwards."""
    own, aggregate = vars(strategy).get("aggregate_train"), strategy.aggregate_train
    heard: list[tuple[list[Message], ArrayRecord, str]] = []

    def listening(server_round: int, replies: Iterable[Message]) -> Any:
        received = list(replies)
        arrays, metrics = aggregate(server_round, received)
        if arrays is not None:
            weight = getattr(strategy, "weighted_by_key", "")
            heard.append((received, arrays, weight))
        return arrays, metrics

    strategy.aggregate_train = listening
    try:
        yield heard
    finally:
        del strategy.aggregate_train
        if own is not None:
            strategy.aggregate_train = own

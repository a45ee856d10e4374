"""The gradients of a round: those that clients send, and those of candidate batches."""

from collections.abc import Iterator

import torch

from leakgauge.core.knowledge import STATIC
from leakgauge.core.rng import derive
from leakgauge.core.types import Grads, Params
from leakgauge.defenses import Defense, none
from leakgauge.inference.games.candidates import CandidateBatches, Candidates
from leakgauge.inference.games.trials import Trials
from leakgauge.inference.run.stage import Stage
from leakgauge.training.observation import sent_gradients


def sent_by_clients(
    stage: Stage,
    number: int,
    params: Params,
    trials: Trials,
    defense: Defense,
    *,
    order: torch.Tensor | None = None,
) -> Iterator[Grads]:
    """Yield the gradients of the trials as an observer of a round sees them, chunk by chunk.

    Args:
        stage: of the game.
        number: of the round.
        params: of the round.
        trials: whose batches are sent.
        defense: of the round.
        order: positions of the trials ``[n]`` in the order in which they are yielded; None for
            their own. The noise of a trial does not depend on it.
    """
    settings = stage.settings
    return sent_gradients(
        stage.task,
        params,
        stage.in_round(trials.pool, "client", number),
        trials.rows,
        defense=defense,
        noise_seed=derive(settings.seed, stage.name, "noise", number),
        max_bytes=settings.max_bytes,
        secret=stage.game.known_to_defender(trials),
        only=order,
    )


def by_block(trials: Trials) -> torch.Tensor:
    """Return the positions of the trials ``[n]``, those of one block of records together.

    Trials of a block share its records, so a chunk of neighbours needs the gradients of few
    records, and makes each of them once.
    """
    return trials.block.argsort(stable=True)


def candidates_of_trials(
    stage: Stage,
    number: int,
    params: Params,
    defense: Defense,
    trials: Trials,
    chunk: torch.Tensor,
) -> dict[str, Candidates]:
    """Return the gradients of the candidates of the trials ``chunk``, for each knowledge."""
    candidates = trials.candidates
    assert candidates is not None
    used, index = torch.unique(candidates.index[chunk], return_inverse=True)
    return {
        knowledge: Candidates(
            _sent_by_adversary(
                stage,
                number,
                params,
                candidates,
                used,
                none() if knowledge == STATIC else defense.without_noise(),
            ),
            index,
        )
        for knowledge in stage.knowledge
    }


def _sent_by_adversary(
    stage: Stage,
    number: int,
    params: Params,
    candidates: CandidateBatches,
    used: torch.Tensor,
    defense: Defense,
) -> Grads:
    chunks = list(
        sent_gradients(
            stage.task,
            params,
            stage.in_round(candidates.pool, "candidates", number),
            candidates.rows,
            defense=defense,
            noise_seed=derive(stage.settings.seed, stage.name, "candidate noise", number),
            max_bytes=stage.settings.max_bytes,
            secret=candidates.secret,
            only=used,
        )
    )
    return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}

"""Runs the audit of a guarantee and returns its measurements."""

from dataclasses import replace
from functools import partial

import torch
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import require
from leakgauge.core.rng import derive, stream, torch_stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Params, Task
from leakgauge.defenses import dpsgd
from leakgauge.gradients import params_of
from leakgauge.guarantee.checking import neighbours_of
from leakgauge.guarantee.filter import FilterMechanism
from leakgauge.guarantee.game import AuditResult, audit_pair
from leakgauge.guarantee.mechanism import DPSGDMechanism, Mechanism, build_mechanism
from leakgauge.guarantee.pair import NeighbourPair
from leakgauge.guarantee.run.measure import measurements_of
from leakgauge.guarantee.run.preparing import GuaranteePrepared
from leakgauge.guarantee.run.record import pair_from_arrays, pair_of, pair_to_arrays
from leakgauge.guarantee.spec import QUESTION, GuaranteeSpec
from leakgauge.guarantee.statistic import LikelihoodRatio, Norm, Statistic
from leakgauge.models.perceptron import mlp
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.parts import begin, once, once_tensors
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.spec import own_code
from leakgauge.runs.work import WorkFolder
from leakgauge.training import train_epoch

STATISTICS: dict[str, Statistic] = {one.name: one for one in (LikelihoodRatio(), Norm())}
CRAFTING, RELEASING = "crafting a record", "releasing gradients"
TRAINING, KEPT = "training", "trained"


def answer(
    prepared: GuaranteePrepared,
    folder: WorkFolder,
    progress: Progress,
    *,
    workers: int | None = None,
) -> Answer:
    """Return how well releases of a model reveal one attribute; ``workers`` changes nothing.

    Raises:
        InputError: the training diverges, or the mechanism fails.
    """
    run = prepared.run
    identity = replace(run, settings={**run.settings, "code": own_code(prepared.spec)})
    begin(folder, run, progress, identity=identity)
    with one_thread():
        pair, result = _audit(prepared, folder, progress)
    return Answer(run, measurements_of(prepared, pair, result))


def _audit(
    prepared: GuaranteePrepared, folder: WorkFolder, progress: Progress
) -> tuple[NeighbourPair, AuditResult]:
    spec, task = prepared.spec, initial_task(prepared)
    params = audited_params(prepared, task, folder, progress)
    search = Checkpoint(folder, "search")
    crafting = partial(progress.step, CRAFTING)
    kept = once(
        folder, "record", lambda: pair_to_arrays(pair_of(prepared, task, params, crafting, search))
    )
    folder.forget("search")
    pair = pair_from_arrays(kept, prepared)
    progress.step(RELEASING, 0, 1)
    result = audit_pair(
        task,
        params,
        pair,
        mechanism_of(spec.mechanism, prepared.claimed),
        claimed=prepared.claimed,
        statistic=statistic_of(spec.statistic, prepared.claimed),
        trials=spec.trials,
        delta=spec.delta,
        near=neighbours_of(spec),
        releases=spec.releases,
        seed=spec.seed,
        checkpoint=Checkpoint(folder, "trials"),
    )
    progress.step(RELEASING, 1, 1)
    return pair, result


def mechanism_of(name: str, claimed: DPSGDMechanism | FilterMechanism) -> Mechanism:
    """Return the audited mechanism: a filter, or one of ``build_mechanism``."""
    return claimed if isinstance(claimed, FilterMechanism) else build_mechanism(name, claimed)


def statistic_of(name: str, claimed: DPSGDMechanism | FilterMechanism) -> Statistic:
    """Return the statistic of a name; the likelihood ratio is that of the claimed noise."""
    if name == LikelihoodRatio.name and isinstance(claimed, FilterMechanism):
        return claimed.likelihood_ratio()
    return STATISTICS[name]


def initial_task(prepared: GuaranteePrepared) -> Task:
    """Return the network before any training, and its loss."""
    spec, width = prepared.spec, prepared.data.x.shape[1]
    generator = torch_stream(spec.seed, "model")
    model = mlp(width, prepared.classes, spec.hidden, generator=generator)
    return Task(model.to(spec.device), cross_entropy)


def audited_params(
    prepared: GuaranteePrepared, task: Task, folder: WorkFolder, progress: Progress
) -> Params:
    """Return the audited parameters: those at the end of the training.

    Without rounds they are the initial ones. A round is an epoch of DP-SGD. Kept parameters are
    read back.

    Raises:
        InputError: the training diverges.

    References:
        Li et al., CCS 2024, Definition 7.2, step 3; section 5.1.4.
    """
    spec, data, claim = prepared.spec, prepared.data, prepared.claimed
    first = params_of(task.model)
    if spec.rounds == 0:
        return first

    assert isinstance(claim, DPSGDMechanism)  # a filter trains no rounds

    def train() -> Params:
        params: Params = first
        private = data.rows(private_rows(len(data), spec).to(data.y.device))
        defense = dpsgd.DPSGD(claim.clip, claim.noise).build(batch_size=spec.batch_size)
        for number in range(1, spec.rounds + 1):
            progress.step(TRAINING, number - 1, spec.rounds)
            params = train_epoch(
                task,
                params,
                private,
                lr=spec.lr,
                batch_size=spec.batch_size,
                rng=stream(spec.seed, QUESTION, "train", number),
                defense=defense,
                noise_seed=derive(spec.seed, QUESTION, "train noise", number),
            )
            require(
                all(bool(leaf.isfinite().all()) for leaf in params.values()),
                f"training diverged in round {number} (parameters are not finite); lower --lr, "
                f"now {spec.lr:g}",
            )
        progress.step(TRAINING, spec.rounds, spec.rounds)
        return params

    return once_tensors(folder, KEPT, train, like=first)


def private_rows(count: int, spec: GuaranteeSpec) -> torch.Tensor:
    """Return the rows of the training records: all, or ``spec.private`` of them."""
    rows = stream(spec.seed, QUESTION, "private").permutation(count)
    return torch.from_numpy(rows[: spec.private])

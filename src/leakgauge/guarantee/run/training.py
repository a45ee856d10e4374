"""Training before the audit: DP-SGD on the private records, as the mechanism claims to be."""

import torch

from leakgauge.core.checks import require
from leakgauge.core.rng import derive, stream
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.defenses import dpsgd
from leakgauge.gradients import params_of
from leakgauge.guarantee.spec import QUESTION, GuaranteeSpec, claimed
from leakgauge.runs.question import Progress
from leakgauge.runs.work import WorkFolder
from leakgauge.training import train_epoch

TRAINING = "training"
KEPT = "trained"


def audited_params(
    task: Task, data: Dataset, spec: GuaranteeSpec, folder: WorkFolder, progress: Progress
) -> Params:
    """Return the parameters that are audited: the latest ones of the training.

    Without rounds they are the initial ones. A round is an epoch of DP-SGD. Those that a kill left
    are read back.

    Args:
        task: the initial model and its loss.
        data: the encoded table.
        spec: resolved.
        folder: keeps the parameters.
        progress: gets finished rounds.

    Raises:
        InputError: the training diverges.

    References:
        Li et al., CCS 2024, Definition 7.2, step 3; section 5.1.4.
    """
    params: Params = params_of(task.model)
    if spec.rounds == 0:
        return params
    kept = folder.tensors(KEPT, like=params)
    if kept is not None:
        return kept
    private, claim = data.rows(private_rows(len(data), spec).to(data.y.device)), claimed(spec)
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
            f"training diverged in round {number} (parameters are not finite); lower --lr, now "
            f"{spec.lr:g}",
        )
    progress.step(TRAINING, spec.rounds, spec.rounds)
    folder.keep_tensors(KEPT, params)
    return params


def private_rows(count: int, spec: GuaranteeSpec) -> torch.Tensor:
    """Return the rows of the records that are trained on: all, or ``spec.private`` of them."""
    rows = stream(spec.seed, QUESTION, "private").permutation(count)
    return torch.from_numpy(rows[: spec.private])

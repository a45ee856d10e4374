"""Images rebuilt from the gradients of some layers only (Mo et al., 2021, section 9.2)."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace

import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.core.types import Params, Task
from leakgauge.gradients import batch_gradients
from leakgauge.gradients.walk import LINEAR, walk
from leakgauge.inversion.attack import attack
from leakgauge.inversion.metrics.similarity import ssim
from leakgauge.inversion.metrics.table import PSNR, SSIM
from leakgauge.inversion.observed import AttackOptions, Knowledge, ObservedUpdates, SearchProgress
from leakgauge.inversion.scoring import MSE, Scorer
from leakgauge.inversion.search.layer_weights import objective_of
from leakgauge.inversion.search.objective import Objective
from leakgauge.inversion.search.presets import Search
from leakgauge.inversion.search.settings import SearchSettings


@dataclass(frozen=True, eq=False)
class LayersRebuilt:
    """What an attacker rebuilds who sees the gradients of some layers.

    Attributes:
        layers: names of the layers that it sees.
        reads_label: whether the output layer is among them, so that the label is read off it.
        x: images ``[n, c, h, w]``, pixels from 0 to 1.
        labels: as read off or as searched for ``[n]`` int64.
        loss: distance of the gradients that the attacker compares, with its priors ``[n]``.
        mse: mean squared error of the pixels ``[n]`` float64.
        psnr: in dB ``[n]`` float64.
        ssim: structural similarity ``[n]`` float64.
    """

    layers: tuple[str, ...]
    reads_label: bool
    x: Tensor
    labels: Tensor
    loss: Tensor
    mse: Tensor
    psnr: Tensor
    ssim: Tensor


def rebuild_from_layers(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    sets: Sequence[Sequence[str]],
    *,
    settings: SearchSettings,
    seed: int,
    progress: SearchProgress | None = None,
) -> list[LayersRebuilt]:
    """Rebuild each record from its gradient at some layers, for each set of layers.

    The attacker gets zeros for all other layers and compares none of them. Where it sees the
    output layer, the last one and linear, it reads the label off it, as iDLG does. Elsewhere the
    label is unknown, and it searches for soft labels together with the image, as DLG does; the true
    label is never used. All sets begin at the same images, so they compare record by record.

    Args:
        task: the model and its cross entropy.
        params: where the gradients are taken.
        x: private images ``[n, c, h, w]``, pixels from 0 to 1, each in a batch of its own.
        y: their labels ``[n]``.
        sets: names of layers, as ``leakgauge.gradients.walk.walk`` gives them.
        settings: of the search, such as ``leakgauge.inversion.preset("idlg")``.
        seed: draws the starts.
        progress: called at each iteration of each set.

    Returns:
        One result a set, in order; images are cut to pixels from 0 to 1 before they are scored.

    Raises:
        InputError: a layer is unknown, a set is empty, pixels are out of range, the objective
            cannot leave out layers, or a gradient is all zeros at the layers of a set.

    References:
        Mo et al., Layer-wise Characterization of Latent Information Leakage, 2021, Figure 10;
        Zhu et al., NeurIPS 2019 (DLG); Zhao et al., iDLG, 2020.

    >>> from leakgauge.inversion import preset
    >>> from leakgauge.models import lenet
    >>> task = Task(lenet(1, 4, 12, generator=torch.Generator().manual_seed(0)), "cross_entropy")
    >>> params, x = dict(task.model.named_parameters()), torch.full((1, 1, 12, 12), 0.5)
    >>> dlg = preset("idlg", iterations=1)
    >>> one, both = rebuild_from_layers(
    ...     task, params, x, torch.tensor([3]), [("0",), ("0", "7")], settings=dlg, seed=0
    ... )
    >>> one.reads_label, both.reads_label, both.labels
    (False, True, tensor([3]))
    """
    seen = [_parameters(task, layers) for layers in sets]
    ssim(x, x)  # refuses what is no image before the search, not after it
    require(
        bool(((x >= 0) & (x <= 1)).all()),
        f"pixels run from {float(x.min()):g} to {float(x.max()):g}; expected 0 to 1",
    )
    fixed = {name: leaf.detach() for name, leaf in params.items()}
    grads = batch_gradients(task, fixed, x[:, None], y[:, None])
    last, results = walk(task)[-1], []
    for layers, names in zip(sets, seen, strict=True):
        held = {n: leaf if n in names else torch.zeros_like(leaf) for n, leaf in grads.items()}
        reads = last.kind == LINEAR and last.name in layers
        objective = seeing(objective_of(settings.objective, task.model), names)
        found = attack(
            task,
            ObservedUpdates(fixed, held, (1, *x.shape[1:])),
            Search(replace(settings, objective=objective, joint_labels=not reads)),
            Knowledge(x.new_tensor(0.0), x.new_tensor(1.0), infer="auto" if reads else None),
            AttackOptions(seed, progress=progress),
        )
        images, labels = found.x[:, 0].detach().clamp(0, 1), found.labels[:, 0]
        scores = Scorer(metrics=(MSE, PSNR, SSIM)).scores(images, x)
        values = scores[MSE], scores[PSNR], scores[SSIM]
        results.append(LayersRebuilt(tuple(layers), reads, images, labels, found.loss, *values))
    return results


def seeing(objective: Objective, names: tuple[str, ...]) -> Objective:
    """Return an objective that compares the parameters ``names`` alone.

    Raises:
        InputError: the objective has no ``layers`` to choose by, as those of the presets have.

    >>> from leakgauge.inversion import Cosine
    >>> seeing(Cosine(), ("0.weight",))
    Cosine(layers=('0.weight',))
    """
    if not is_dataclass(objective) or "layers" not in {one.name for one in fields(objective)}:
        raise InputError(
            f"{objective!r} cannot leave out layers; take SquaredError, Cosine or LayerWeighted, "
            "or give your dataclass a field layers"
        )
    narrowed: Objective = replace(objective, layers=names)
    return narrowed


def _parameters(task: Task, layers: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the parameters of some layers, in the order of the model."""
    require(len(layers) > 0, "a set of layers is empty; name a layer, or leave the set out")
    known = {layer.name: layer.parameters for layer in walk(task)}
    for name in layers:
        require_known(name, known, f"the model has no layer {name!r}")
    return tuple(name for layer, held in known.items() if layer in layers for name in held)

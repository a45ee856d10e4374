"""Attacks by an attacker who knows the defense: they compare what the defense lets through.

Each transform defines by ``Transform.adapt`` how to compare the clean gradient of a guess with the
defended update. The smoothness of images replaces what the defense removes: ``adapted_settings``
also raises the total variation.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError
from leakgauge.core.types import Grads
from leakgauge.defenses import Defense, OnLayers
from leakgauge.defenses.simulated import DefendedGuess
from leakgauge.gradients.flattening import flat_leaf
from leakgauge.gradients.gradients import params_of
from leakgauge.inversion.search.layer_weights import LayerWeights, objective_of
from leakgauge.inversion.search.objective import Cosine, LayerWeighted, Objective, SquaredError
from leakgauge.inversion.search.settings import SearchSettings

TOTAL_VARIATION = 0.05
"""Smallest weight of the total variation against a defended update. Of 0.003 to 0.1, on eight
training images of CIFAR-10 and an untrained slim net, it or the next was best for each defense."""

FAINT = 0.25
"""Largest share of the update's norm at which noise is ignored. Eight training images of CIFAR-10
and an untrained slim net: the static attack came nearer up to a share of 0.2, the adaptive one from
0.27 on."""

FEW = 0.25
"""Largest share of the coordinates at which changed layers are left out: the others are known
exactly. Four images of CIFAR-10 and an untrained slim net: without a first layer of signs (2 % of
the coordinates) 31.9 dB, with it 25.5; without a pruned last layer (42 %) 22.1 dB, with it 24.1."""


@dataclass(frozen=True)
class RelativeError:
    """For noise: the squared error over the squared size of the update.

    Equal Gaussian noise on every coordinate makes the squared error the log-likelihood, up to a
    factor; a cosine ignores the gradient's size, and weights by layer count some of the noise more
    than the rest. Weights by the share of signal in each layer or coordinate did worse.

    Attributes:
        layers: names of the parameters that are compared; None compares all.

    >>> sent = {"w": torch.tensor([[3.0, 4.0]])}
    >>> RelativeError()({"w": torch.tensor([[3.0, 9.0]])}, sent)
    tensor([1.])
    """

    layers: tuple[str, ...] | None = None

    def __call__(self, guess: Grads, observed: Grads) -> Tensor:
        """Return the distance of each row, ``[N]``, without a unit; 1 at a gradient of zeros."""
        error = SquaredError(self.layers)
        size = error({name: torch.zeros_like(leaf) for name, leaf in observed.items()}, observed)
        return error(guess, observed) / torch.where(size > 0, size, 1.0)


def adapted(objective: Objective, defense: Defense) -> Objective:
    """Return the objective of an attacker who knows the defense.

    Clipping alone changes only the size of a record's gradient, which ``adapted_settings`` then
    ignores, and every attacker knows a changed model: the objective stays as it is. DP-SGD is
    treated as noise on its clipped mean.

    Args:
        objective: objective of the static attacker.
        defense: as the client applied it.

    Raises:
        InputError: no attack is known that adapts to this defense.

    >>> from leakgauge.defenses import parse_defense
    >>> from leakgauge.inversion.search.objective import Cosine
    >>> adapted(Cosine(), parse_defense("sign", batch_size=1))
    SoftSigns(objective=Cosine(layers=None), softness=0.5, one_bit=False)
    """
    # A clipped gradient has lost its size, which the relative error would use.
    if defense.noise_std > 0 and defense.keeps_size:
        objective = RelativeError(getattr(objective, "layers", None))
    changed = defense.adapt(objective)
    if changed is None:
        raise InputError(
            f"no attack adapts to the defense {defense.name!r}; its transform does not define how "
            "to compare a guess, as those of prune, sign and noise do (Transform.adapt); attack it "
            "with static knowledge"
        )
    return changed


def adapts(settings: SearchSettings, defense: Defense) -> bool:
    """Return whether knowledge of the defense changes the attack.

    >>> from leakgauge.defenses import Clip, Prune
    >>> plain, sized = SearchSettings(), SearchSettings(rescale=True)
    >>> prune, clip = (one.build(batch_size=1) for one in (Prune(), Clip(1.0)))
    >>> adapts(plain, prune), adapts(plain, clip), adapts(sized, clip)
    (True, False, True)
    """
    if defense.learn is not None:
        return False
    per_example = defense.per_example
    cut = per_example is not None and not per_example.keeps_size and settings.rescale
    known = defense.adapt(SquaredError()) is not None
    return cut or (known and not defense.update.is_identity)


def noise_share(defense: Defense, sent: Grads) -> float:
    """Return the expected norm of a known defense's noise over that of updates; their mean.

    Args:
        defense: as the client applied it.
        sent: the updates as clients sent them, leaf ``[T, *p]``.

    >>> from leakgauge.defenses import Noise
    >>> noise_share(Noise(0.1).build(batch_size=1), {"w": torch.tensor([[0.6, 0.8]])})
    0.1414...
    """
    rows = [flat_leaf(leaf) for leaf in sent.values()]
    norms = torch.stack([row.double().square().sum(1) for row in rows]).sum(0).sqrt()
    return float((defense.noise_std * sum(row.shape[1] for row in rows) ** 0.5 / norms).mean())


def adapted_settings(
    settings: SearchSettings, defense: Defense, model: nn.Module, sent: Grads | None = None
) -> SearchSettings:
    """Return the attack of an attacker who knows the defense: another objective, smoother images.

    Noise whose share of the update is at most ``FAINT`` is ignored: the objectives that allow for
    noise find less under faint noise.

    Args:
        settings: settings of the static attack.
        defense: as the client applied it.
        model: the attacked one; it decides the layer weights.
        sent: the updates as clients sent them, leaf ``[T, *p]``; None never takes noise for faint.

    Returns:
        ``settings`` themselves where knowledge of the defense changes nothing.

    Raises:
        InputError: as ``adapted``.
    """
    if sent is not None and 0 < noise_share(defense, sent) <= FAINT:
        defense = defense.without_noise()
    # A gradient that is pruned, clipped or reduced to signs has lost its size.
    sized = defense.keeps_size
    if defense.update.is_identity:
        return settings if sized else replace(settings, rescale=False)
    known_exactly = _unchanged(settings, defense, model)
    if known_exactly is not None:
        return replace(settings, objective=known_exactly, rescale=settings.rescale and sized)
    if isinstance(settings.objective, LayerWeights):
        # The zeros of a changed update are not those of a ReLU.
        settings = replace(settings, objective=replace(settings.objective, relu=False))
    objective = adapted(objective_of(settings.objective, model), defense)
    rescale = settings.rescale and sized
    if isinstance(objective, DefendedGuess) and objective.slope:  # nothing may be lost
        return replace(settings, objective=objective, rescale=rescale)
    return replace(smoother(settings), objective=objective, rescale=rescale)


def _unchanged(settings: SearchSettings, defense: Defense, model: nn.Module) -> Objective | None:
    """Return the objective of the layers that pass unchanged; None unless ``FEW`` are changed."""
    update, params = defense.update, params_of(model)
    if not isinstance(update, OnLayers) or update.share(params) > FEW:
        return None
    objective = objective_of(settings.objective, model)
    if not isinstance(objective, SquaredError | Cosine | LayerWeighted):
        return None
    changed = update.layers.parameters(params)
    left = tuple(name for name in objective.layers or params if name not in changed)
    return replace(objective, layers=left) if left else None


def smoother(settings: SearchSettings) -> SearchSettings:
    """Return the search with smoother images, for gradients that have lost more than their size.

    Without a weight of the total variation (records other than images), none is set.
    """
    smooth = max(settings.total_variation, TOTAL_VARIATION) if settings.total_variation > 0 else 0.0
    return replace(
        settings, total_variation=smooth, prior_relative=False, prior_first=1.0, rescale=False
    )

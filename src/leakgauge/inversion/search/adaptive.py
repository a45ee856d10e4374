"""Attackers who know the defense: an objective is changed to compare what the defense lets through.

Each transform says by ``Transform.adapt`` how to compare the clean gradient of a guess with the
defended update. What the defense took away, the smoothness of images has to replace:
``adapted_settings`` also raises the total variation.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError
from leakgauge.core.types import Grads
from leakgauge.defenses import Defense
from leakgauge.inversion.search.engine import objective_of
from leakgauge.inversion.search.objective import Objective, SquaredError
from leakgauge.inversion.search.settings import Settings

TOTAL_VARIATION = 0.05
"""Least weight of the total variation against a defended update. Of 0.003 to 0.1, on eight training
images of CIFAR-10 and an untrained slim net, it or the next was best for each defense."""


@dataclass(frozen=True)
class RelativeError:
    """For noise: the squared error over the squared size of the update.

    Equal Gaussian noise on every coordinate makes the squared error the log-likelihood, up to a
    factor; a cosine throws the gradient's size away, and weights by layer count some of the noise
    more than the rest. Weights by the share of signal in each layer or coordinate did worse.

    Attributes:
        layers: names of the parameters that are compared; None compares all.

    >>> sent = {"w": torch.tensor([[3.0, 4.0]])}
    >>> RelativeError()({"w": torch.tensor([[3.0, 9.0]])}, sent)
    tensor([1.])
    """

    layers: tuple[str, ...] | None = None

    def __call__(self, guess: Grads, wanted: Grads) -> Tensor:
        """The distance of each row, ``[N]``, without a unit; 1 at a gradient of zeros."""
        error = SquaredError(self.layers)
        size = error({name: torch.zeros_like(leaf) for name, leaf in wanted.items()}, wanted)
        return error(guess, wanted) / torch.where(size > 0, size, 1.0)


def adapted(objective: Objective, defense: Defense) -> Objective:
    """The objective of an attacker who knows the defense.

    Clipping alone changes only the size of a record's gradient, for which ``adapted_settings``
    asks no more, and a changed model is known to everyone: the objective stays as it is. DP-SGD
    is taken for the noise on its clipped mean.

    Args:
        objective: of the static attacker.
        defense: as the client applied it.

    Raises:
        InputError: no attack is known that adapts to this defense.

    >>> from leakgauge.defenses import parse_defense
    >>> from leakgauge.inversion.search.objective import Cosine
    >>> adapted(Cosine(), parse_defense("sign", batch_size=1))
    SoftSigns(objective=Cosine(layers=None), softness=0.5)
    """
    # A clipped gradient has lost its size, which the relative error would ask for.
    if defense.noise_std > 0 and defense.keeps_size:
        objective = RelativeError(getattr(objective, "layers", None))
    changed = defense.adapt(objective)
    if changed is None:
        raise InputError(
            f"no attack adapts to the defense {defense.name!r}; its transform does not say how to "
            "compare a guess, as those of prune, sign and noise do (Transform.adapt): attack this "
            "one without"
        )
    return changed


def adapts(settings: Settings, defense: Defense) -> bool:
    """Whether knowing the defense changes the attack.

    >>> from leakgauge.defenses import Clip, Prune
    >>> plain, sized = Settings(), Settings(rescale=True)
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


def adapted_settings(settings: Settings, defense: Defense, model: nn.Module) -> Settings:
    """The attack of someone who knows the defense: its objective, and images taken as smoother.

    Args:
        settings: of the static attack.
        defense: as the client applied it.
        model: that is attacked; it decides on layer weights.

    Returns:
        ``settings`` themselves where knowing the defense changes nothing. Without a weight of the
        total variation there (records that are no images), none is set.

    Raises:
        InputError: as ``adapted``.
    """
    objective = adapted(objective_of(settings, model), defense)
    # What is cut to signs, pruned or clipped has lost its size, which rescaling would ask for.
    sized = defense.keeps_size
    if defense.update.is_identity:
        return settings if sized else replace(settings, rescale=False)
    smooth = settings.total_variation
    smooth = max(smooth, TOTAL_VARIATION) if smooth > 0 else 0.0
    return replace(
        settings,
        objective=objective,
        total_variation=smooth,
        prior_relative=False,
        prior_first=1.0,
        rescale=settings.rescale and sized,
    )

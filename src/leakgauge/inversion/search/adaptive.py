"""Attackers who know the defense: an objective is changed to compare what the defense lets through.

Each is an objective of its own: ``(found, wanted) -> [N]`` with leaves ``[N, *p]``; ``found`` is
the clean gradient of a guess, ``wanted`` the defended update. What the defense took away, the
smoothness of images has to replace: ``adapted_settings`` also raises the total variation.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError, require_positive
from leakgauge.core.types import Grads
from leakgauge.defenses import Defense, GaussianNoise, Identity, Prune, Sign
from leakgauge.defenses.transform import alike
from leakgauge.gradients.flattening import norms
from leakgauge.inversion.search.engine import objective_of
from leakgauge.inversion.search.objective import Objective, SquaredError
from leakgauge.inversion.search.settings import Settings

TOTAL_VARIATION = 0.05
"""Least weight of the total variation against a defended update. Of 0.003 to 0.1, on eight training
images of CIFAR-10 and an untrained slim net, it or the next was best for each defense."""


@dataclass(frozen=True)
class Pruned:
    """For pruning: what was sent must agree, what was not must be small enough not to be sent.

    The smallest coordinate that was sent of a parameter is its threshold. Where 0 was sent, the
    guess counts only by what it has above the threshold. That is measured in units of the
    gradient's size, so a guess of another size is judged like one of the right size. A static
    attack takes the zeros for wanted.

    Attributes:
        objective: compares the update with what is left of the guess.
        whole: all parameters have one threshold, their smallest: as ``Prune.whole``.

    >>> sent = {"w": torch.tensor([[3.0, 2.0, 0.0]])}
    >>> found = {"w": torch.tensor([[3.0, 2.0, 1.5]])}
    >>> SquaredError()(found, sent), Pruned(SquaredError())(found, sent)
    (tensor([2.2500]), tensor([0.]))
    """

    objective: Objective
    whole: bool = False

    def __call__(self, found: Grads, wanted: Grads) -> Tensor:
        """The distance of each row, ``[N]``."""
        kept = {name: found[name] * (sent != 0) for name, sent in wanted.items()}
        size, full = norms({name: leaf.detach() for name, leaf in kept.items()}), norms(wanted)
        scale = size / torch.where(full > 0, full, 1.0)
        left = {
            name: kept[name] + _excess(found[name] - kept[name], limit * scale)
            for name, limit in self._limits(wanted).items()
        }
        return self.objective(left, wanted)

    def _limits(self, wanted: Grads) -> dict[str, Tensor]:
        """The smallest sizes ``[N]`` that were sent; where nothing was, beyond any other."""

        def smallest(sent: Tensor) -> Tensor:
            sizes = torch.where(sent != 0, sent.abs(), torch.finfo(sent.dtype).max)
            return sizes.reshape(len(sent), -1).amin(dim=1)

        sizes = {name: smallest(sent) for name, sent in wanted.items()}
        if not self.whole:
            return sizes
        return dict.fromkeys(sizes, torch.stack(list(sizes.values())).amin(dim=0))


@dataclass(frozen=True)
class SoftSigns:
    """For signs: the guess's gradient is turned into signs, too, by a function with a slope.

    Each coordinate g becomes tanh(g / scale). The scale is ``softness`` times the mean size of the
    guess's coordinates in that parameter, so the size of the gradient does not matter; a
    coordinate well above it and of the right sign is content.

    Attributes:
        objective: compares soft signs with the signs that were sent.
        softness: above 0; towards 0 the function becomes the sign, without a slope. On eight
            training images of CIFAR-10, 0.25 did worse than 0.5, and 1 about as well.

    >>> found, sent = {"w": torch.tensor([[9.0, -1.0]])}, {"w": torch.tensor([[1.0, -1.0]])}
    >>> bool(SoftSigns(SquaredError(), 0.1)(found, sent) < 0.01)
    True
    """

    objective: Objective
    softness: float = 0.5

    def __post_init__(self) -> None:
        require_positive(self.softness, "softness of signs")

    def __call__(self, found: Grads, wanted: Grads) -> Tensor:
        """The distance of each row, ``[N]``."""
        return self.objective({name: self._soft(found[name]) for name in wanted}, wanted)

    def _soft(self, leaf: Tensor) -> Tensor:
        scale = self.softness * leaf.abs().reshape(len(leaf), -1).mean(dim=1)
        # A parameter without any gradient has no sign: 0, with a finite slope.
        return torch.tanh(leaf / alike(torch.where(scale > 0, scale, 1.0), leaf))


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

    def __call__(self, found: Grads, wanted: Grads) -> Tensor:
        """The distance of each row, ``[N]``, without a unit; 1 at a gradient of zeros."""
        error = SquaredError(self.layers)
        size = error({name: torch.zeros_like(leaf) for name, leaf in wanted.items()}, wanted)
        return error(found, wanted) / torch.where(size > 0, size, 1.0)


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
    if defense.learn is None:
        match defense.update:
            case Identity():
                return objective
            case Prune(whole=whole):
                return Pruned(objective, whole)
            case Sign():
                return SoftSigns(objective)
            case GaussianNoise(std):
                layers = getattr(objective, "layers", None)
                # A clipped gradient has lost its size, which the error would ask for.
                plain = std == 0 or defense.per_example is not None
                return objective if plain else RelativeError(layers)
    raise InputError(
        f"no attack adapts to the defense {defense.name!r}; it is known for prune, sign and noise: "
        "attack this one without"
    )


def adapts(settings: Settings, defense: Defense) -> bool:
    """Whether knowing the defense changes the attack.

    >>> from leakgauge.defenses import clip, prune
    >>> plain, sized = Settings(), Settings(rescale=True)
    >>> adapts(plain, prune()), adapts(plain, clip(1.0)), adapts(sized, clip(1.0))
    (True, False, True)
    """
    if defense.learn is not None:
        return False
    cut = defense.per_example is not None and settings.rescale
    return cut or isinstance(defense.update, Prune | Sign | GaussianNoise)


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
    sized = isinstance(defense.update, Identity | GaussianNoise) and defense.per_example is None
    if isinstance(defense.update, Identity):
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


def _excess(leaf: Tensor, limit: Tensor) -> Tensor:
    """What goes beyond ``limit [N]``, with its sign."""
    bound = alike(limit, leaf)
    return leaf - torch.minimum(torch.maximum(leaf, -bound), bound)

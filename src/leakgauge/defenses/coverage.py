"""Which of the arrays that clients send a defense does not cover.

A norm and noise protect the arrays that they are taken over. What leaves beside them is not
protected: other layers, running statistics of BatchNorm, parameters that are a single number.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from leakgauge.core.names import few
from leakgauge.defenses.defense import Defense
from leakgauge.defenses.layers import OnLayers
from leakgauge.defenses.simulated import moves_alike

BY_NORM = ("dpsgd", "local-dp", "svt", "fixed-clipping", "adaptive-clipping")
"""The defenses whose promise needs a norm, or a clamp, of all that is sent."""

PASSES_NUMBERS = ("svt",)
"""Those of them that leave a parameter that is a single number as it is."""


@dataclass(frozen=True)
class SentArrays:
    """The arrays of a model that a norm over its gradients may miss.

    Attributes:
        statistics: names of the running statistics of normalisation layers, which follow records.
        numbers: names of the parameters that are a single number.
    """

    statistics: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: nn.Module) -> "SentArrays":
        """Return those of a model.

        >>> SentArrays.of(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))).statistics
        ('1.running_mean', '1.running_var')
        """
        statistics = [
            f"{name}.{buffer}" if name else buffer
            for name, layer in model.named_modules()
            if isinstance(layer, nn.modules.batchnorm._NormBase) and layer.track_running_stats
            for buffer in ("running_mean", "running_var")
        ]
        numbers = [name for name, leaf in model.named_parameters() if leaf.dim() == 0]
        return cls(tuple(statistics), tuple(numbers))


def uncovered(text: str, word: str, sent: SentArrays) -> Iterator[str]:
    """Return one line for each kind of array that a defense of the catalogue does not cover.

    Args:
        text: the defense, as a user writes it.
        word: its name in the catalogue.
        sent: the arrays of the model.

    >>> next(uncovered("svt", "svt", SentArrays(numbers=("scale",))))[:58]
    "`svt` leaves parameters that are a single number ('scale')"
    """
    if word in BY_NORM and sent.statistics:
        yield (
            f"`{text}` limits the norm of the parameters alone; the running statistics of the "
            f"model ({few(sent.statistics)}), which follow the records and which clients send "
            "too, leave without limit and noise: filter them as well, or use GroupNorm"
        )
    if word in PASSES_NUMBERS and sent.numbers:
        yield (
            f"`{text}` leaves parameters that are a single number ({few(sent.numbers)}) as they "
            "are: give them a shape of [1]"
        )


def undone(text: str, defense: Defense) -> Iterator[str]:
    """Return one line if a defense without noise only moves, turns or scales gradients alike.

    >>> from leakgauge.defenses import Identity
    >>> [*undone("mine:nothing", Defense("mine:nothing", update=Identity()))]
    []
    """
    changes = [one for one in (defense.per_example, defense.update) if one and not one.is_identity]
    if changes and all(map(moves_alike, changes)):
        yield (
            f"`{text}` changes all gradients alike (distances between them stay the same), so it "
            "hides nothing from who has its code: a test that finds less with it has not undone it"
        )


def partly(text: str, defense: Defense) -> Iterator[str]:
    """Return one line for each norm or noise that a defense applies to some layers only.

    >>> from leakgauge.defenses import ClipNorm
    >>> from leakgauge.defenses.layers import Layers
    >>> clip = OnLayers(Layers(("first",)), ClipNorm(1.0))
    >>> next(partly("mine:clip", Defense("mine:clip", update=clip)))[:54]
    '`mine:clip` limits the norm of the layers first alone,'
    """
    transforms = [defense.per_example, defense.update]
    for part in (part for one in transforms if one is not None for part in one.parts):
        if isinstance(part, OnLayers) and any(
            one.clip_norm is not None for one in part.transform.parts
        ):
            yield (
                f"`{text}` limits the norm of the layers {part.layers} alone, and the others leave "
                "without limit, so no epsilon follows: clip all layers together"
            )

"""Defenses of some layers only: the gradients of the other layers pass unchanged."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.core.checks import nearest, require
from leakgauge.core.types import Grads
from leakgauge.defenses.transform import Objective, Transform, require_transform
from leakgauge.gradients.walk import by_layer

FIRST, LAST = "first", "last"


@dataclass(frozen=True)
class Layers:
    """A choice of a model's layers; a layer is all parameters of one module.

    Attributes:
        words: ``"first"``, ``"last"`` (in the order in which the model registers its layers), or a
            layer's name as ``leakgauge.gradients.walk.walk`` gives it, such as ``"body.conv1"``.

    >>> names = ["0.weight", "0.bias", "2.weight", "4.weight"]
    >>> Layers.read("first+4").parameters(names)
    ['0.weight', '0.bias', '4.weight']
    >>> Layers.read("conv1").parameters(["conv.weight"])
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: layers: the model has no layer 'conv1'; did you mean 'conv'?
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        require(
            bool(self.words) and all(self.words),
            f"layers is {str(self)!r}; expected first, last or names of layers, joined by '+', "
            "as layers=0+3+last",
        )
        require(
            len(set(self.words)) == len(self.words),
            f"layers is {str(self)!r}, which names one twice; name each once",
        )

    @classmethod
    def read(cls, text: str) -> "Layers":
        """Return the choice of a text such as ``"0+3+last"``."""
        return cls(tuple(word.strip() for word in text.split("+")))

    def __str__(self) -> str:
        """The text that ``read`` reads."""
        return "+".join(self.words)

    def parameters(self, names: Iterable[str]) -> list[str]:
        """Return those of the parameters ``names``, in model order, that the chosen layers hold.

        Raises:
            InputError: a word names no layer, or two of them.
        """
        layers = by_layer(names)
        chosen = {_named(word, list(layers)) for word in self.words}
        return [name for layer, held in layers.items() if layer in chosen for name in held]


@dataclass(frozen=True)
class OnLayers(Transform):
    """Applies a transform to the gradients of some layers, as if the model had only these.

    Traits of the whole gradient do not hold: clip norm and noise on each coordinate are missing,
    so no guarantee follows. ``without_noise`` keeps its noise: an adversary simulates it.

    Attributes:
        layers: the changed layers.
        transform: transform of their gradients.

    >>> from leakgauge.defenses import SignTransform
    >>> grads = {"0.weight": torch.tensor([[-3.0]]), "1.weight": torch.tensor([[-3.0]])}
    >>> OnLayers(Layers(("last",)), SignTransform())(grads, [])
    {'0.weight': tensor([[-3.]]), '1.weight': tensor([[-1.]])}
    """

    layers: Layers
    transform: Transform

    def __post_init__(self) -> None:
        require_transform(self.transform, "on some layers")

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Return the gradients, those of the chosen layers transformed together.

        Raises:
            InputError: a chosen layer is not there.
        """
        if not grads:
            return {}
        chosen = self.layers.parameters(grads)
        changed = self.transform({name: grads[name] for name in chosen}, rngs)
        return {name: changed.get(name, leaf) for name, leaf in grads.items()}

    def centre(self, grads: Grads) -> Grads:
        """Return the gradients, those of the chosen layers without the transform's randomness."""
        chosen = self.layers.parameters(grads)
        changed = self.transform.centre({name: grads[name] for name in chosen})
        return {name: changed.get(name, leaf) for name, leaf in grads.items()}

    def check(self, names: Sequence[str]) -> None:
        """Refuse a model without the chosen layers."""
        self.layers.parameters(names)

    def knowing(self, secret: Tensor) -> "OnLayers":
        """Return the transform that knows the secrets ``[N]``."""
        return replace(self, transform=self.transform.knowing(secret))

    @property
    def is_identity(self) -> bool:
        """Whether the chosen layers pass unchanged, too."""
        return self.transform.is_identity

    @property
    def keeps_size(self) -> bool:
        """Whether the chosen layers keep their norm, and so the whole gradient."""
        return self.transform.keeps_size

    @property
    def adds_noise(self) -> bool:
        """Whether the chosen layers get Gaussian noise."""
        return self.transform.adds_noise

    @property
    def is_known(self) -> bool:
        """Whether an attack knows how the chosen layers change."""
        return self.transform.is_known

    def share(self, grads: Mapping[str, Tensor]) -> float:
        """Return the share of the coordinates that it changes, for gradients by parameter.

        >>> grads = {"0.weight": torch.zeros(3), "1.weight": torch.zeros(1)}
        >>> from leakgauge.defenses import SignTransform
        >>> OnLayers(Layers(("last",)), SignTransform()).share(grads)
        0.25
        """
        chosen = self.layers.parameters(grads)
        return sum(grads[name].numel() for name in chosen) / sum(
            leaf.numel() for leaf in grads.values()
        )

    def adapt(self, objective: Objective) -> "AdaptedOnLayers":
        """Return the objective that knows which layers are changed, and how."""
        return AdaptedOnLayers(objective, self)


@dataclass(frozen=True)
class AdaptedOnLayers:
    """Compares the unchanged layers plainly, and adds the changed ones, compared as adapted.

    Each part weighs as its share of the coordinates, and the gradients of the other part count as
    zeros on both sides. Where no attack adapts to the transform, the changed layers are left out:
    the others are known exactly.

    Attributes:
        objective: objective of an attacker who does not know the defense.
        defended: the transform of some layers.

    >>> from leakgauge.defenses import StochasticQuantise
    >>> def squared(guess, sent):
    ...     return sum((guess[name] - sent[name]).square().sum(dim=1) for name in sent)
    >>> defended = OnLayers(Layers(("first",)), StochasticQuantise(1))
    >>> guess = {"0.weight": torch.tensor([[5.0]]), "1.weight": torch.tensor([[3.0]])}
    >>> sent = {"0.weight": torch.tensor([[0.0]]), "1.weight": torch.tensor([[1.0]])}
    >>> AdaptedOnLayers(squared, defended)(guess, sent)
    tensor([4.])
    """

    objective: Objective
    defended: OnLayers

    def __call__(self, guess: Grads, sent: Grads) -> Tensor:
        """Return the distance of each row ``[N]``.

        Raises:
            InputError: all layers are changed, in a way to which no attack adapts.
        """
        chosen = self.defended.layers.parameters(sent)
        others = [name for name in sent if name not in chosen]

        def filled(guessed: Grads, part: Grads) -> Tensor:
            """Compare a part of the gradients; the rest is 0 on both sides."""
            zeros = {name: torch.zeros_like(leaf) for name, leaf in sent.items()}
            return self.objective({**zeros, **guessed}, {**zeros, **part})

        adapted = self.defended.transform.adapt(filled)
        require(
            adapted is not None or bool(others),
            f"layers={self.defended.layers} are all layers of the model, and no attack adapts to "
            "what changes them; attack them with static knowledge",
        )
        if adapted is None:
            return _on(filled, others, guess, sent)
        if not others:
            return _on(adapted, chosen, guess, sent)
        weight = self.defended.share(sent)
        unchanged, changed = _on(filled, others, guess, sent), _on(adapted, chosen, guess, sent)
        return (1 - weight) * unchanged + weight * changed


def on_layers(transform: Transform, layers: str | None) -> Transform:
    """Return the transform on the layers of a text such as ``"0+3+last"``; itself for None.

    >>> from leakgauge.defenses import SignTransform
    >>> on_layers(SignTransform(), None)
    SignTransform(one_bit=False)
    """
    return transform if layers is None else OnLayers(Layers.read(layers), transform)


def _on(objective: Objective, names: Sequence[str], guess: Grads, sent: Grads) -> Tensor:
    """Return the distances ``[N]`` of some of the gradients."""
    return objective({name: guess[name] for name in names}, {name: sent[name] for name in names})


def _named(word: str, layers: Sequence[str]) -> str:
    """Return the layer of a word."""
    places = {FIRST: 0, LAST: -1}
    if word not in places:
        known = [*layers, *places]
        require(word in layers, f"layers: the model has no layer {word!r}{nearest(word, known)}")
        return word
    found = layers[places[word]]
    require(
        word not in layers or found == word,
        f"layers: {word!r} is the {word} layer, {found!r}, and also the name of another one; "
        "rename that module",
    )
    return found

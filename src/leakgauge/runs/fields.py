"""The settings that several questions have: training, data and defenses, declared once."""

from typing import Any

from leakgauge.defenses.catalog import HELP as DEFENSES_HELP
from leakgauge.defenses.catalog import NOTATION as DEFENSES_NOTATION
from leakgauge.models.named import NETS, SCHEMES
from leakgauge.runs.setting import DATA, DEFENSE, TRAINING, setting
from leakgauge.runs.spec import NONE
from leakgauge.training.catalog import HELP as OPTIMIZERS_HELP
from leakgauge.training.catalog import NOTATION as OPTIMIZERS_NOTATION

MOST_STEPS = 1000
"""Largest number of a client's steps, or passes, before it sends."""

WIDEST = 100_000
"""Largest number of outputs of a layer."""


LARGEST_SIDE = 1024
"""Largest height and width of images in pixels: all images of the data are held at this size."""


def learning_rate(default: float) -> Any:
    """Return the field for the learning rate of the training."""
    return setting(default, "learning rate of the training", TRAINING, above=0)


def optimizer_field(default: str, role: str) -> Any:
    """Return the field for an optimizer; ``role`` says in the help what it does."""
    return setting(default, f"{role}: {OPTIMIZERS_HELP}", TRAINING, notation=OPTIMIZERS_NOTATION)


def hidden_widths(default: tuple[int, ...] = (100,)) -> Any:
    """Return the field for the hidden layers of the network for tables."""
    text = "width of a hidden layer of the network for tables"
    return setting(default, text, TRAINING, least=1, most=WIDEST)


def image_network(default: str = "cnn") -> Any:
    """Return the field for the network for images."""
    return setting(default, "network for images", TRAINING, choices=tuple(NETS))


def initial_weights() -> Any:
    """Return the field for the scheme of the first weights of the built-in networks."""
    return setting("pytorch", "how to draw the initial weights", TRAINING, choices=SCHEMES)


def image_side(*, option: bool = True) -> Any:
    """Return the field for the size of images; the other questions have a constant."""
    text = "height and width of images, in pixels"
    return setting(32, text, DATA, least=1, most=LARGEST_SIDE, option=option)


def defense_field(role: str) -> Any:
    """Return the field for defenses, each a cell of a grid; ``role`` says in the help what for."""
    return setting(
        (NONE,),
        f"{role}: {DEFENSES_HELP}",
        DEFENSE,
        cells=True,
        adds=True,
        notation=DEFENSES_NOTATION,
    )

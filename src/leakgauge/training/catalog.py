"""Names of the optimizers on the command line. Importing this module loads no torch."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from leakgauge.core.checks import InputError, require
from leakgauge.core.numbers import read_number
from leakgauge.core.registry import Registry

if TYPE_CHECKING:
    from leakgauge.training.optimizers import Make


SGD = "sgd"
"""Plain SGD, the default."""

OPTIMIZERS = {
    name: f"leakgauge.training.optimizers:{name}"
    for name in (SGD, "adam", "adamw", "rmsprop", "adagrad")
}
"""Import path of each optimizer, which is imported on first use."""

HELP = (
    "sgd, sgd:momentum=0.9,nesterov=1, sgd:proximal_mu=0.01 (FedProx), "
    "adam:lr=0.001,weight_decay=0.01, adamw, rmsprop, adagrad; or your own, "
    "MODULE:NAME[:key=value,...], such as torch.optim:NAdam"
)

REGISTRY = Registry("optimizer", OPTIMIZERS, "leakgauge.optimizers")

SUPPLIED = ("params",)
"""Arguments that an optimizer gets in addition to its settings."""

NOTATION = REGISTRY.notation(supplied=SUPPLIED)
"""What users may write for an optimizer."""


def parse_optimizer(text: str, *, lr: float) -> "Make | None":
    """Return the optimizer of ``NAME[:key=value,...]``; None for plain SGD.

    NAME is one of ``OPTIMIZERS``, an entry point of the group ``leakgauge.optimizers``, or
    ``MODULE:NAME``: a function or class that is called with the parameters, and with ``lr`` where
    it takes one, and returns a ``torch.optim.Optimizer``.

    Args:
        text: such as ``sgd``, ``sgd:momentum=0.9`` or ``adam:lr=0.001``.
        lr: the learning rate, where the text names none.

    Raises:
        InputError: the name, a key or a value is not known, or the optimizer cannot make a step.

    >>> parse_optimizer("sgd", lr=0.1) is None
    True
    >>> parse_optimizer("adm", lr=0.1)
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: optimizer 'adm' is not known; did you mean 'adam'?
    """
    if text.strip() == SGD:
        return None
    from leakgauge.training.optimizers import NamedOptimizer

    require(bool(text.strip()), f"--optimizer is empty; name one of {', '.join(OPTIMIZERS)}")
    made = NamedOptimizer(REGISTRY.read(text, supplied=SUPPLIED), lr)
    made.try_once()
    return made


def own_rate(text: str) -> float | None:
    """Return the learning rate that the text of an optimizer names; None where it names none.

    >>> own_rate("adam:weight_decay=0.1,lr=0.001"), own_rate("sgd:momentum=0.9")
    (0.001, None)
    """
    found = re.search(r"[:,]\s*lr\s*=([^,]*)", text)
    return None if found is None else read_number(found[1], float, "optimizer: lr")


def with_settings(text: str, settings: Mapping[str, float]) -> str:
    """Return the text of an optimizer with further settings, except those that it has.

    >>> with_settings("adamw:weight_decay=0.1", {"weight_decay": 0.5, "proximal_mu": 0.01})
    'adamw:weight_decay=0.1,proximal_mu=0.01'
    """
    name, _, own = text.strip().partition(":")
    has = {one.partition("=")[0].strip() for one in own.split(",")}
    more = [f"{key}={value}" for key, value in settings.items() if key not in has]
    return name + ":" * bool(own or more) + ",".join([own] * bool(own) + more)


def text_of(optimizer: object) -> str:
    """Return the text that names an optimizer: its own, or MODULE:NAME of a function or class.

    Raises:
        InputError: it is neither text nor importable.

    >>> text_of("adam"), text_of(text_of)
    ('adam', 'leakgauge.training.catalog:text_of')
    """
    if isinstance(optimizer, str):
        return optimizer
    module, name = (getattr(optimizer, key, None) for key in ("__module__", "__qualname__"))
    if not (callable(optimizer) and module and str(name).isidentifier()):
        came = name or type(optimizer).__name__
        raise InputError(
            f"the optimizer is {came}; expected text, such as 'adam:lr=0.001', or a function or "
            "class of a module, which worker processes can import"
        )
    return f"{module}:{name}"


PRINTED, UNIT, LOG = "printed", "unit", "log"
FORMS = (LOG, PRINTED, UNIT)

"""The settings of a client's local training, as configurations of frameworks name them."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from leakgauge.core.checks import (
    LARGEST,
    require,
    require_choice,
    require_count,
    require_positive,
)
from leakgauge.training.catalog import OPTIMIZERS, SGD, parse_optimizer, with_settings

NAMES: Mapping[str, tuple[str, ...]] = {
    "lr": ("lr", "learning-rate", "local-lr"),
    "batch_size": ("batch-size", "local-batch-size"),
    "epochs": ("local-epochs", "epochs", "num-epochs", "aggregation-epochs"),
    "steps": ("local-steps", "num-steps"),
    "momentum": ("momentum",),
    "weight_decay": ("weight-decay", "local-weight-decay"),
    "proximal_mu": ("proximal-mu", "fedprox-mu"),
}
"""The keys of each setting; ``_`` counts as ``-``, and the first key wins."""

NESTEROV = "nesterov"
"""The key of the truth value that makes a momentum Nesterov's."""

NAMING = ("local-optimizer", "client-optimizer", "optimizer", "optim")
"""The keys of the optimizer's name, such as ``Adam`` or ``torch.optim.AdamW``."""


@dataclass(frozen=True)
class LocalTraining:
    """Known settings of a client's training in a round.

    Attributes:
        lr: learning rate.
        batch_size: records of a step.
        epochs: passes over its records.
        steps: number of steps; None if epochs, records and batch size determine it.
        momentum: momentum of SGD, without dampening or Nesterov; None counts as 0.
        optimizer: the optimizer, as ``training.catalog`` reads it; None where none is named.
        weight_decay: weight decay of any optimizer; None counts as torch's default.
        proximal_mu: weight of FedProx's term in the loss; None counts as 0.

    Raises:
        InputError: a number does not fit.

    >>> found = LocalTraining.found_in({"local_epochs": 2, "learning-rate": 0.1, "rounds": 3})
    >>> found.lr, found.epochs, found.batch_size
    (0.1, 2, None)
    """

    lr: float | None = None
    batch_size: int | None = None
    epochs: int | None = None
    steps: int | None = None
    momentum: float | None = None
    optimizer: str | None = None
    weight_decay: float | None = None
    proximal_mu: float | None = None

    def __post_init__(self) -> None:
        if self.lr is not None:
            require_positive(self.lr, "learning rate")
        for name in ("batch_size", "epochs", "steps"):
            if (value := getattr(self, name)) is not None:
                require_count(value, name.replace("_", " "))
        require(
            self.momentum is None or 0 <= self.momentum < 1,
            f"momentum is {self.momentum}; expected a number from 0 to below 1",
        )
        for name in BESIDE:
            value = getattr(self, name)
            said = f"{name.replace('_', ' ')} is {value}; expected a number of 0 or more"
            require(value is None or 0 <= value < math.inf, said)
        if self.optimizer is not None:
            # A file must not name code, which would run where the file is read.
            require_choice(self.optimizer.partition(":")[0], "optimizer of clients", OPTIMIZERS)
            _ = parse_optimizer(self.optimizer, lr=1.0)
            require(
                not self.momentum or self.optimizer == SGD,
                f"momentum is {self.momentum} beside the optimizer {self.optimizer!r}; name it in "
                "one place, as in sgd:momentum=0.9",
            )

    @classmethod
    def found_in(cls, config: Mapping[str, Any]) -> "LocalTraining":
        """Return the settings that a configuration names, without invalid values."""
        given = {key.lower().replace("_", "-"): value for key, value in numbers(config).items()}
        found = cls()
        for name, keys in NAMES.items():
            value = next((given[key] for key in keys if key in given), None)
            whole = name in ("batch_size", "epochs", "steps")
            if value is None or (whole and value != int(value)):
                continue
            number: Any = int(value) if whole else float(value)
            if 0 < number < LARGEST and (name != "momentum" or number < 1):
                found = replace(found, **{name: number})
        chosen = next((known for key in NAMING if (known := _known(config, key))), None)
        # A momentum of an unnamed optimizer is SGD's; Adam and Adagrad have none.
        takes = chosen or (SGD if found.momentum else None)
        momentum = found.momentum if takes in WITH_MOMENTUM else None
        if momentum and takes == SGD and _is_true(config, NESTEROV):
            return replace(found, optimizer=f"{SGD}:momentum={momentum},nesterov=1", momentum=None)
        if momentum and takes != SGD:
            return replace(found, optimizer=f"{takes}:momentum={momentum}", momentum=None)
        return replace(found, optimizer=chosen, momentum=momentum)

    def updated(self, declared: "LocalTraining") -> "LocalTraining":
        """Return these settings with those that ``declared`` names in their place.

        >>> LocalTraining(lr=0.1, epochs=2).updated(LocalTraining(lr=0.5)).lr
        0.5
        """
        named = {k: v for k, v in asdict(declared).items() if v is not None}
        if declared.optimizer is not None:  # it says all but FedProx's term, which is the server's
            named |= {"momentum": declared.momentum, "weight_decay": declared.weight_decay}
        elif declared.momentum is not None:
            named["optimizer"] = None
        return replace(self, **named)

    def steps_over(self, examples: int | None) -> int | None:
        """Return the steps of a round over a number of records; None if unknown.

        >>> LocalTraining(epochs=2, batch_size=32).steps_over(100)
        8
        """
        if self.steps is not None:
            return self.steps
        if self.epochs is None or self.batch_size is None or examples is None:
            return None
        return self.epochs * math.ceil(examples / self.batch_size)

    @property
    def named_optimizer(self) -> str | None:
        """The optimizer with all its settings, as ``training.catalog`` reads it; None if not named.

        >>> LocalTraining(momentum=0.5, proximal_mu=0.1).named_optimizer
        'sgd:momentum=0.5,proximal_mu=0.1'
        >>> LocalTraining(proximal_mu=0.1).named_optimizer is None
        True
        """
        named = f"{SGD}:momentum={self.momentum}" if self.momentum else self.optimizer
        return None if named is None else with_settings(named, self.beside)

    @property
    def beside(self) -> dict[str, float]:
        """The settings that any optimizer has, by name; those of 0 and None are left out."""
        return {name: value for name in BESIDE if (value := getattr(self, name))}


def _known(config: Mapping[str, Any], key: str) -> str | None:
    """Return the optimizer that a key names; other texts may hold passwords.

    >>> _known({"Optimizer": "torch.optim.AdamW"}, "optimizer"), _known({"optimizer": "x"}, "optim")
    ('adamw', None)
    """
    for name, value in config.items():
        if name.lower().replace("_", "-") == key and isinstance(value, str):
            last = value.strip().rpartition(".")[2].lower()
            return last if last in OPTIMIZERS else None
    return None


def _is_true(config: Mapping[str, Any], key: str) -> bool:
    """Return whether a configuration says yes under a key: true, 1, or the text of it."""
    said = [value for name, value in config.items() if name.lower().replace("_", "-") == key]
    return any(value in (True, 1) or str(value).strip().lower() == "true" for value in said)


def numbers(config: Mapping[str, Any]) -> dict[str, int | float]:
    """Return the finite numbers of a configuration; texts may hold paths or passwords.

    Whole numbers of 2^62 or more are left out: a file of kept updates could not be read again.

    >>> numbers({"lr": 0.1, "token": "abc", "loss": float("nan"), "debug": True})
    {'lr': 0.1}
    """
    return {
        str(key): value
        for key, value in config.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < (math.inf if isinstance(value, float) else LARGEST)
    }


BESIDE = ("weight_decay", "proximal_mu")
"""Settings of ``LocalTraining`` that any optimizer may have."""

WITH_MOMENTUM = (SGD, "rmsprop")
"""The optimizers whose momentum a configuration may name by itself."""

FIELDS = tuple(one.name for one in fields(LocalTraining))
"""The names of the settings."""

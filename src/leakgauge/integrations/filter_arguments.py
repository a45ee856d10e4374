"""The arguments of the filters of NVFlare 2.9 and Flower 1.41, as a configuration gives them."""

import inspect
from collections.abc import Mapping
from typing import Any

from leakgauge.core.checks import InputError, nearest, require
from leakgauge.core.numbers import read_number
from leakgauge.integrations.switched_on import SwitchedOn

SIDES = ("Client", "Server")

PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "SVTPrivacy": {
        "fraction": 0.1, "epsilon": 0.1, "noise_var": 0.1, "gamma": 1e-5, "tau": 1e-6,
        "data_kinds": None, "replace": True, "epsilon_threshold": None, "epsilon_query": None,
        "epsilon_release": None,
    },
    "PercentilePrivacy": {"percentile": 10, "gamma": 0.01, "data_kinds": None},
    "ExcludeVars": {"exclude_vars": None, "data_kinds": None},
    "LocalDpMod": dict.fromkeys(("clipping_norm", "sensitivity", "epsilon", "delta"),
                                inspect.Parameter.empty),
    "fixedclipping_mod": {},
    "adaptiveclipping_mod": {},
    **{
        f"DifferentialPrivacy{side}SideFixedClipping": dict.fromkeys(
            ("noise_multiplier", "clipping_norm", "num_sampled_clients"), inspect.Parameter.empty
        )
        for side in SIDES
    },
    **{
        f"DifferentialPrivacy{side}SideAdaptiveClipping": {
            **dict.fromkeys(("noise_multiplier", "num_sampled_clients"), inspect.Parameter.empty),
            "initial_clipping_norm": 0.1, "target_clipped_quantile": 0.5, "clip_norm_lr": 0.2,
            "clipped_count_stddev": None,
        }
        for side in SIDES
    },
}  # fmt: skip
"""The arguments of the known filters with their defaults; ``empty`` where users must give one."""

ALIASES = {"clip": "clipping_norm", "clip_norm": "clipping_norm", "max_norm": "clipping_norm"}
"""Names of the clip in filters that copy Flower's."""

MODEL_KINDS = ("WEIGHTS", "WEIGHT_DIFF")
"""NVFlare's kinds of data that hold a model."""


class Arguments:
    """The arguments of a filter in a file, with the defaults of its class.

    Args:
        switched: the filter in the file.
        name: name of the known filter that it is.

    Raises:
        InputError: the known filter has no such argument.
    """

    def __init__(self, switched: SwitchedOn, name: str) -> None:
        own = switched.name == name
        known = PARAMETERS[name]
        self.path = switched.path
        self.given: dict[str, Any] = {}
        for key, value in switched.arguments.items():
            plain = key if own else ALIASES.get(key, key)
            require(
                plain in known or not own,
                f"{switched.path} has no argument {key!r}{nearest(key, known)}",
            )
            self.given[plain] = value
        self.values = {**known, **self.given}

    def number(self, key: str) -> float:
        """Return a number of the file, or its default.

        Raises:
            InputError: it is missing, or no number.
        """
        value = self.values[key]
        if value is inspect.Parameter.empty:
            raise InputError(f"{self.path} lacks {key}; write its value")
        if isinstance(value, str):  # YAML reads 1e-4 as text
            return float(read_number(value, float, f"{self.path}: {key}"))
        require(
            isinstance(value, int | float) and not isinstance(value, bool),
            f"{self.path}: {key} is {value!r}; expected a number",
        )
        return float(value)

    def optional(self, key: str) -> float | None:
        """Return a number, or None where the file has none."""
        return None if self.values[key] is None else self.number(key)

    def kinds(self) -> tuple[str, ...]:
        """Return a note where the filter is for some kinds of data only."""
        kinds = self.values.get("data_kinds")
        return (f"it filters {kinds} alone; other data leave as they are",) if kinds else ()

    @property
    def filters_models(self) -> bool:
        """Whether the kinds of data that it filters hold a model."""
        kinds = self.values.get("data_kinds") or MODEL_KINDS
        return any(one in MODEL_KINDS for one in ([kinds] if isinstance(kinds, str) else kinds))

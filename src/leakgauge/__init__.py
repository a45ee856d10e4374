"""Measure how much private information leaks through the gradients of a training run."""

from typing import TYPE_CHECKING

from leakgauge.core.lazy import attach

__version__ = "0.2.0"

if TYPE_CHECKING:
    from leakgauge.api import Data as Data
    from leakgauge.api import audit as audit
    from leakgauge.api import compare as compare
    from leakgauge.api import load as load
    from leakgauge.core.checks import InputError as InputError
    from leakgauge.core.types import Dataset as Dataset
    from leakgauge.core.types import Task as Task
    from leakgauge.data.arrays import from_arrays as from_arrays
    from leakgauge.defenses.clip import Clip as Clip
    from leakgauge.defenses.dpsgd import DPSGD as DPSGD
    from leakgauge.defenses.noise import Noise as Noise
    from leakgauge.defenses.perturb import Perturb as Perturb
    from leakgauge.defenses.prune import Prune as Prune
    from leakgauge.defenses.quantise import Quantise as Quantise
    from leakgauge.defenses.sign import Sign as Sign
    from leakgauge.defenses.vib import VIB as VIB
    from leakgauge.result import Result as Result
    from leakgauge.results.measurements import Estimate as Estimate
    from leakgauge.results.measurements import Measurement as Measurement
    from leakgauge.runs.question import Question as Question
    from leakgauge.tokens.monitor.monitor import Monitor as Monitor
    from leakgauge.training.update import Update as Update
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "Clip": "leakgauge.defenses.clip",
            "DPSGD": "leakgauge.defenses.dpsgd",
            "Data": "leakgauge.api",
            "Dataset": "leakgauge.core.types",
            "Estimate": "leakgauge.results.measurements",
            "InputError": "leakgauge.core.checks",
            "Measurement": "leakgauge.results.measurements",
            "Monitor": "leakgauge.tokens.monitor.monitor",
            "Noise": "leakgauge.defenses.noise",
            "Perturb": "leakgauge.defenses.perturb",
            "Prune": "leakgauge.defenses.prune",
            "Quantise": "leakgauge.defenses.quantise",
            "Question": "leakgauge.runs.question",
            "Result": "leakgauge.result",
            "Sign": "leakgauge.defenses.sign",
            "Task": "leakgauge.core.types",
            "Update": "leakgauge.training.update",
            "VIB": "leakgauge.defenses.vib",
            "audit": "leakgauge.api",
            "compare": "leakgauge.api",
            "from_arrays": "leakgauge.data.arrays",
            "load": "leakgauge.api",
        },
    )

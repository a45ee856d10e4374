"""Measure how much private information leaks through the gradients of a training run."""

from typing import TYPE_CHECKING

from leakgauge.core.lazy import attach, by_module

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
    from leakgauge.model_checks.guard import ModelRefusedError as ModelRefusedError
    from leakgauge.model_checks.guard import guard as guard
    from leakgauge.result import Result as Result
    from leakgauge.results.measurements import Estimate as Estimate
    from leakgauge.results.measurements import Measurement as Measurement
    from leakgauge.runs.question import Question as Question
    from leakgauge.tokens.monitor.monitor import Monitor as Monitor
    from leakgauge.training.update import Update as Update
else:
    _NAMES = {
        "api": "Data audit compare load",
        "core.checks": "InputError",
        "core.types": "Dataset Task",
        "data.arrays": "from_arrays",
        "defenses": "Clip DPSGD Noise Perturb Prune Quantise Sign VIB",
        "model_checks.guard": "ModelRefusedError guard",
        "result": "Result",
        "results.measurements": "Estimate Measurement",
        "runs.question": "Question",
        "tokens.monitor.monitor": "Monitor",
        "training.update": "Update",
    }
    __getattr__, __dir__, __all__ = attach(__name__, by_module(_NAMES))

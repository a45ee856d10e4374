"""Load the example for Flower as a module: its grid runs real Flower code in this process."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"


def in_process() -> ModuleType:
    """Return the example's module ``in_process``; needs flwr."""
    path = EXAMPLE / "in_process.py"
    spec = importlib.util.spec_from_file_location("leakgauge_example_in_process", path)
    assert spec is not None
    assert spec.loader is not None
    if spec.name not in sys.modules:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[spec.name] = module
    return sys.modules[spec.name]

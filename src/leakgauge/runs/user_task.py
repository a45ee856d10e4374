"""``--task MODULE:FUNCTION``: the user's own model and data."""

import contextlib
import random
import sys
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from leakgauge.core.checks import InputError, require
from leakgauge.core.rng import derive
from leakgauge.core.types import Dataset, Schema, Task
from leakgauge.core.user_code import function_of, one_line
from leakgauge.data import from_arrays

WANTED = "expected a function that returns (leakgauge.Task, leakgauge.Dataset)"


def load_task(spec: str, *, seed: int) -> tuple[Task, Dataset]:
    """Import MODULE, from the working folder too, and call its FUNCTION.

    The global generators are seeded before the call, so that a model which draws its weights from
    them is the same in every run with this seed.

    Raises:
        InputError: it cannot be imported or called, or returns something else.
    """
    with contextlib.redirect_stdout(sys.stderr):  # what it prints is no part of the answer
        return _loaded(spec, seed)


def _loaded(spec: str, seed: int) -> tuple[Task, Dataset]:
    function = function_of(spec, "--task")
    random.seed(derive(seed, "task"))
    np.random.seed(derive(seed, "task") % 2**32)  # noqa: NPY002 - the user's code may use it
    torch.manual_seed(derive(seed, "task"))
    try:
        returned = function()
    except (Exception, SystemExit) as error:
        raise InputError(f"--task {spec}: the function raised {one_line(error)}") from error
    if not (isinstance(returned, tuple) and len(returned) == 2):
        raise InputError(f"--task {spec} returned {type(returned).__name__}; {WANTED}")
    task, data = returned
    if not (isinstance(task, Task) and isinstance(data, Dataset)):
        kinds = f"({type(task).__name__}, {type(data).__name__})"
        raise InputError(f"--task {spec} returned {kinds}; {WANTED}")
    _check_model(spec, task.model)
    return task, _checked(spec, data)


def _check_model(spec: str, model: object) -> None:
    if not isinstance(model, nn.Module):
        raise InputError(
            f"--task {spec}: the model of the Task is {type(model).__name__}; expected a "
            "torch.nn.Module"
        )


def _checked(spec: str, data: Dataset) -> Dataset:
    """The same data with what can be repaired without doubt (types of codes), or a refusal."""
    named = isinstance(data.secrets, Mapping) and all(isinstance(n, str) for n in data.secrets)
    require(
        named,
        f"--task {spec}: secrets of the Dataset are {str(data.secrets)[:60]}; expected a mapping "
        "from names to codes",
    )
    require(
        data.schema is None or isinstance(data.schema, Schema),
        f"--task {spec}: schema of the Dataset is {type(data.schema).__name__}; expected a Schema "
        "or None",
    )
    parts = {"x": data.x, "y": data.y, **data.secrets}
    for name, part in parts.items():
        require(
            isinstance(part, torch.Tensor),
            f"--task {spec}: {name} of the Dataset is {type(part).__name__}, not a tensor; make "
            "the Dataset with leakgauge.from_arrays",
        )
    require(
        data.x.layout == torch.strided and data.x.dtype != torch.bfloat16,
        f"--task {spec}: x of the Dataset is {data.x.dtype}, {data.x.layout}; expected dense "
        "numbers, such as float32",
    )
    plain = from_arrays(data.x, data.y, data.secrets, users=data.users, dtype=data.x.dtype)
    return replace(plain, x=data.x, schema=data.schema)

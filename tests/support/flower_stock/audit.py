"""The auditor's tasks, by kind of app."""

import torch
from stockapp import task as app

import leakgauge


def _data(kind: str) -> leakgauge.Dataset:
    owners = [*range(app.CLIENTS), -1]
    x, y = (torch.cat(parts) for parts in zip(*(app.records(kind, one) for one in owners)))  # noqa: B905
    counts = torch.tensor([*[app.PER_CLIENT] * app.CLIENTS, app.PUBLIC])
    client = torch.tensor([one + 1 for one in owners]).repeat_interleave(counts)
    return leakgauge.from_arrays(x, y, {"client": client}, dtype=x.dtype)  # tokens stay whole


def torch_task() -> tuple[leakgauge.Task, leakgauge.Dataset]:
    """Return the network, also of the app with Lightning, and records."""
    return leakgauge.Task(app.network()), _data("torch")


def public_task() -> tuple[leakgauge.Task, leakgauge.Dataset]:
    """Return the network, and records whose owners are unknown."""
    data = _data("torch")
    return leakgauge.Task(app.network()), leakgauge.Dataset(data.x, data.y)


def lora_task() -> tuple[leakgauge.Task, leakgauge.Dataset]:
    """Return the model with adapters, and records."""
    from leakgauge.integrations.hugging_face_task import classification_task

    return classification_task(app.lora(), padding=None), _data("lora")

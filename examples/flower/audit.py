"""The auditor's part, for ``--task audit:task``: the clients' model, and records."""

import numpy as np
from digitsapp.task import Net, pictures, training_rows

import leakgauge

CLIENTS = 3


def task() -> tuple[leakgauge.Task, leakgauge.Dataset]:
    """Return the model, and the pictures with their client and scanner.

    The secret ``client`` is 0 for pictures that no client trained on, 1 for those of the first
    client, and so on. An auditor who does not know the clients' records omits it: then rebuilt
    records are not scored, and membership is not asked.
    """
    x, y, scanner = pictures()
    client = np.zeros(len(x), dtype=np.int64)
    for number in range(CLIENTS):
        client[training_rows(number)] = number + 1
    data = leakgauge.from_arrays(x, y, {"client": client, "scanner": scanner})
    return leakgauge.Task(Net(), "cross_entropy"), data

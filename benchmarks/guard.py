"""Measure how often ``leakgauge.guard`` refuses honest models, and whether it catches servers.

Honest: rounds of training from first weights on, with a rate that is ten times as large in every
tenth round; the model of each round is checked with its predecessor and a client's records.
Servers: each of ``inversion.servers`` alters each of the networks, before any training and after
it, without a predecessor.

Run: ``python benchmarks/guard.py [--rounds 100] [--seeds 1] [--threads 1]``, with LEAKGAUGE_DATA.
It ends with an error if a server of more than two classes is missed, or if more than 1 % of the
honest models are refused.
"""

import argparse
import copy
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.core.types import Task
from leakgauge.data.source import open_data
from leakgauge.inversion.run.preparing import InversionPrepared, prepare
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.servers.catalog import SERVERS, server_of
from leakgauge.inversion.servers.server import ServerKnowledge
from leakgauge.inversion.spec import InversionSpec
from leakgauge.model_checks.guard import ModelVerdict, guard

RECORDS, BATCH, STEPS, RATE, JUMP = 1536, 64, 5, 0.05, 10.0
MOST_ALARMS = 0.01
NETWORKS = {
    "MLP, 100 units, Adult": InversionSpec(data="adult", images=RECORDS),
    "three convolutions, CIFAR-10": InversionSpec(data="cifar10", net="cnn", images=RECORDS),
    "ResNet20 with BatchNorm, CIFAR-10": InversionSpec(
        data="cifar10", net="resnet20", images=RECORDS
    ),
    "four linear layers, CIFAR-10": InversionSpec(data="cifar10", net="mlp-4", images=RECORDS),
}


@dataclass
class Honest:
    """A training of one network.

    Attributes:
        scenario: records and network.
        models: the model of each round, the first before any training.
        accuracy: share of the records that the last model classifies right.
    """

    scenario: Scenario
    models: list[nn.Module]
    accuracy: float


def scenario_of(spec: InversionSpec, seed: int) -> Scenario:
    """Return records and network of a spec."""
    chosen = replace(spec, draw="random", seed=seed)
    prepared = prepare(chosen, open_data(spec.data))
    assert isinstance(prepared, InversionPrepared)
    return prepared.scenario


def train(scenario: Scenario, rounds: int, seed: int) -> Honest:
    """Return the models of an honest training."""
    model = copy.deepcopy(scenario.task.model)
    generator = torch.Generator().manual_seed(seed)
    models = [copy.deepcopy(model).eval()]
    for number in range(1, rounds):
        rate = RATE * (JUMP if number % 10 == 0 else 1)
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        for _ in range(STEPS):
            rows = torch.randint(len(scenario.x), (BATCH,), generator=generator)
            optimizer.zero_grad()
            loss = cross_entropy(model(scenario.x[rows]), scenario.y[rows])
            torch.autograd.backward(loss)
            optimizer.step()
        models.append(copy.deepcopy(model).eval())
    with torch.no_grad():
        right = model.eval()(scenario.x).argmax(dim=1) == scenario.y
    return Honest(scenario, models, float(right.float().mean()))


def alarms(honest: Honest, seed: int) -> list[ModelVerdict]:
    """Return the verdict on each honest model."""
    generator = torch.Generator().manual_seed(1000 + seed)
    found = []
    for number, model in enumerate(honest.models):
        rows = torch.randint(len(honest.scenario.x), (2 * BATCH,), generator=generator)
        x, y = honest.scenario.x[rows], honest.scenario.y[rows]
        previous = honest.models[number - 1] if number else None
        found.append(guard(model, previous, x=x, y=y, batch_size=BATCH))
    return found


def altered(scenario: Scenario, model: nn.Module, seed: int) -> Iterator[tuple[str, ModelVerdict]]:
    """Yield each server's name and the verdict on its model."""
    x, y = scenario.x, scenario.y
    half = len(x) // 2  # the server knows others than the client has
    known = ServerKnowledge(x[:half], y[:half], scenario.low, scenario.high, BATCH)
    for name in SERVERS:
        server = server_of(name)
        assert server is not None
        generator = torch.Generator().manual_seed(seed)
        task = server.alter(Task(model, scenario.task.loss), known, generator)
        rows = slice(half, half + 2 * BATCH)
        yield name, guard(task.model, x=x[rows], y=y[rows], batch_size=BATCH)


def main() -> int:
    """Print both tables, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    refused, checked, missed = 0, 0, []
    for name, spec in NETWORKS.items():
        for seed in range(arguments.seeds):
            honest = train(scenario_of(spec, seed), arguments.rounds, seed)
            verdicts = alarms(honest, seed)
            reasons = Counter(one.name for verdict in verdicts for one in verdict.reasons)
            refused += sum(verdict.refused for verdict in verdicts)
            checked += len(verdicts)
            print(
                f"{name}, seed {seed}: {sum(v.refused for v in verdicts)} of {len(verdicts)} "
                f"honest models refused {dict(reasons)}; accuracy {honest.accuracy:.2f}; "
                f"largest figures {largest(verdicts)}"
            )
            for when, model in (("untrained", honest.models[0]), ("trained", honest.models[-1])):
                for server, verdict in altered(honest.scenario, model, seed):
                    said = ", ".join(f"{one.name} {one.value:.2f}" for one in verdict.reasons)
                    print(f"  {server}, {when}: {said or 'NOT REFUSED'}")
                    if not verdict.refused:
                        missed.append(f"{server}, {name}, {when}")
    print(f"honest models refused: {refused} of {checked}; servers missed: {missed or 'none'}")
    return int(refused > MOST_ALARMS * checked or bool(missed))


def largest(verdicts: list[ModelVerdict]) -> dict[str, float]:
    """Return the largest figure of each sign."""
    found: dict[str, float] = {}
    for verdict in verdicts:
        for one in verdict.signs:
            found[one.name] = max(found.get(one.name, 0.0), round(one.value, 3))
    return found


if __name__ == "__main__":
    sys.exit(main())

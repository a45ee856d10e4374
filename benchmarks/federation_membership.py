"""Membership from kept updates: single rounds, their sum, and FedMIA, on simulated federations.

    python benchmarks/federation_membership.py [--data digits,adult] [--clients 4,8] [--seeds 5]

Clients train a small network locally for several epochs in each of 5 rounds, so that they overfit
their few records. Half of the clients, at most 3, are attacked. Prints for each attack the mean
over attacked clients of AUROC and TPR at 1 % (and .1 %) false alarms, with a 95 % t interval over
seeds. ``none`` attributes to the clients records that nobody trained on: there each AUROC is 0.5,
and the last column counts the intervals of single clients that lie above it.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from sklearn.datasets import load_digits
from torch import nn

from leakgauge.core.types import Dataset, Task
from leakgauge.data import Roles, encode, make_table, open_data
from leakgauge.federation.metrics import AUROC_OVER
from leakgauge.federation.run.members import infer_members
from leakgauge.federation.run.over_rounds import infer_over_rounds
from leakgauge.federation.run.preparing import FederationPrepared, prepare
from leakgauge.federation.spec import MEMBERSHIP, FederationSpec
from leakgauge.integrations.kept import Exchange, Keeper
from leakgauge.results.roc import auroc, tpr_at_fpr
from leakgauge.runs.sources import task_source
from leakgauge.training import Participant, Protocol, State
from leakgauge.training.federation import federation

ROUNDS, EPOCHS, MOST_ATTACKED = 5, 10, 3
RATES = {"TPR 1 %": 0.01, "TPR .1 %": 0.001}
Rows = dict[str, dict[str, float]]


def digits() -> Dataset:
    x, y = load_digits(return_X_y=True)
    return Dataset(torch.from_numpy(x / 16).float(), torch.from_numpy(y).long())


def adult() -> Dataset:
    table = make_table(open_data("adult").frame, Roles("income", drop=("split",)))
    return encode(table, fit_on=torch.arange(len(table)))


DATA: dict[str, tuple[Callable[[], Dataset], int, int]] = {
    "digits": (digits, 100, 600),
    "adult": (adult, 100, 2500),
}
"""Records, and numbers of a client's and of unused ones."""


def run(
    data: Dataset, clients: int, each: int, unused: int, seed: int, *, theirs: bool
) -> FederationPrepared:
    """Return the kept updates of a federation, with the clients' records or others."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    used, spare, public = (
        order[start : start + count]
        for start, count in (
            (0, clients * each),
            (clients * each, 0 if theirs else clients * each),
            (clients * each * (1 if theirs else 2), unused),
        )
    )
    torch.manual_seed(seed)
    inputs, classes = data.x.shape[1], int(data.y.max()) + 1
    model = nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, classes))
    task = Task(model)
    people = [Participant(data.rows(rows)) for rows in torch.split(used, each)]
    protocol = Protocol(rounds=ROUNDS, lr=0.1, batch_size=16, epochs=EPOCHS)
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(Path(folder))
        for one in federation(task, State.of(model), people, protocol, seed=seed):
            for who in one.sent:
                sent = one.uploaded(who)
                keeper.keep(Exchange(one.number, str(who), one.received[who], sent, examples=each))
        claimed = used if theirs else spare
        rows = torch.cat([claimed, public])
        owner = torch.arange(len(claimed)) // each + 1
        client = torch.cat([owner, torch.zeros(len(public), dtype=torch.int64)])
        audited = Dataset(data.x[rows], data.y[rows], {"client": client})
        spec = FederationSpec(kept=(folder,), task="a:b", ask=(MEMBERSHIP,), seed=seed)
        return _attacked(prepare(spec, task_source(task, audited)), clients)


FOUND: list[tuple[Rows, int]] = []


def _attacked(prepared: FederationPrepared, clients: int) -> FederationPrepared:
    """Attack clients while their files exist, and append the figures of each to ``FOUND``."""
    for client in map(str, range(min(MOST_ATTACKED, clients // 2))):
        mine = [one for one in prepared.kept.updates if one.client == client]
        single = [infer_members(prepared, one) for one in mine]
        whole = infer_over_rounds(prepared, client, single)
        scores: dict[str, Sequence[np.ndarray]] = {
            "single rounds, mean": [one.log_odds for one in single],
            "last round": [single[-1].log_odds],
            **{name: [one] for name, one in whole.scores.items()},
            "weighted sum": [whole.together()[1]],
        }
        rows = {name: _figures(whole.member, each) for name, each in scores.items()}
        above = whole.figures(seed=0)[AUROC_OVER][0].low > 0.5
        FOUND.append((rows, int(above)))
    return prepared


def _figures(member: np.ndarray, each: Sequence[np.ndarray]) -> dict[str, float]:
    found = {"AUROC": float(np.mean([auroc(member, one) for one in each]))}
    others = int((~member).sum())
    for name, rate in RATES.items():
        if others * rate >= 1:
            found[name] = float(np.mean([tpr_at_fpr(member, one, rate) for one in each]))
    return found


def _with_interval(values: Sequence[float]) -> str:
    mean, half = float(np.mean(values)), float("nan")
    if len(values) > 1:
        half = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return f"{mean:.3f} +- {half:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="digits,adult")
    parser.add_argument("--clients", default="4,8")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=["theirs", "none"])
    options = parser.parse_args()
    for name in options.data.split(","):
        make, each, unused = DATA[name]
        data = make()
        for clients in map(int, options.clients.split(",")):
            for kind in (options.only,) if options.only else ("theirs", "none"):
                by_seed: list[Rows] = []
                above = attacked = 0
                for seed in range(options.seeds):
                    FOUND.clear()
                    left = (len(data) - clients * each * (1 if kind == "theirs" else 2), unused)
                    run(data, clients, each, min(left), seed, theirs=kind == "theirs")
                    above += sum(one for _, one in FOUND)
                    attacked += len(FOUND)
                    by_seed.append(_mean([rows for rows, _ in FOUND]))
                print(
                    f"{name}, {clients} clients of {each} records, {kind}: {above} of {attacked} "
                    "clients with the interval of the weighted sum above 0.5",
                    flush=True,
                )
                for attack, first in by_seed[0].items():
                    said = [
                        f"{m} {_with_interval([one[attack][m] for one in by_seed])}" for m in first
                    ]
                    print(f"  {attack:20} {'   '.join(said)}", flush=True)


def _mean(each: Sequence[Rows]) -> Rows:
    return {
        attack: {m: float(np.mean([one[attack][m] for one in each])) for m in figures}
        for attack, figures in each[0].items()
    }


if __name__ == "__main__":
    main()

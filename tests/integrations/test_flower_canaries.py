"""The mod that plants clients: what it sends, and what stays as it is."""

from typing import Any

import numpy as np
import pytest

from leakgauge.core.checks import InputError

pytest.importorskip("flwr", reason='needs pip install "leakgauge[flower]"')

from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod
from flwr.serverapp.strategy import FedAvg

from leakgauge.integrations.flower_canaries import CanaryClients
from support.flower_app import in_process
from support.planted_federation import CLIENT_FIXED, app, strategy, zeros

pytestmark = pytest.mark.usefixtures("quiet_flower")

SHAPES = {"weight": (20, 30), "bias": (20,)}


class Sent(FedAvg):
    """Averages, and notes the replies of each round by partition."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.seen: list[dict[int, tuple[ArrayRecord, dict[str, Any]]]] = []

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        received = list(replies)
        self.seen.append(
            {
                one.metadata.src_node_id - 1000: (
                    one.content["arrays"],
                    dict(one.content["metrics"]),
                )
                for one in received
                if not one.has_error()
            }
        )
        return super().aggregate_train(server_round, received)


def sent(*mods: Any, outer: Any = None, rounds: int = 2, clients: Any = None) -> Sent:
    inner = Sent()
    start = zeros(SHAPES) if clients is None else clients[0]
    chosen = inner if outer is None else strategy(outer, clients=3, inner=inner)
    made = app(*mods) if clients is None else clients[1]
    grid = in_process().InProcess(made, 3, {})
    chosen.start(grid=grid, initial_arrays=start, num_rounds=rounds)
    return inner


def vector(record: ArrayRecord) -> Any:
    return np.concatenate([record[name].numpy().ravel() for name in sorted(record)])


def test_a_planted_client_sends_its_direction_and_others_their_update() -> None:
    canaries = CanaryClients([2, 0], clip=0.5, seed=3, members=[True, False], norm=4.0)
    plain, found = sent().seen, sent(canaries).seen
    for client in (0, 1):  # 0 is planted, and does not take part
        np.testing.assert_array_equal(vector(found[0][client][0]), vector(plain[0][client][0]))
    direction = canaries.planted.directions(1, 620)[0]
    np.testing.assert_allclose(vector(found[0][2][0]), 2.0 * direction, atol=1e-6)
    assert found[0][2][1] == plain[0][2][1], "it states its honest number of examples"


def test_directions_are_new_in_each_round() -> None:
    canaries = CanaryClients([2], clip=1e4, members=[True])  # the rest is small
    first, second = (vector(one[2][0]) for one in sent(canaries).seen)
    before = 1e5 * canaries.planted.directions(1, 620)[0] / 3
    change = second - before
    direction = canaries.planted.directions(2, 620)[0]
    assert direction @ change / np.linalg.norm(change) > 0.999
    assert abs(first @ change) / np.linalg.norm(first) / np.linalg.norm(change) < 0.2


def test_the_server_s_clip_counts_and_the_mod_before_it_clips() -> None:
    canaries = CanaryClients([1], members=[True])
    found = sent(fixedclipping_mod, canaries, outer=CLIENT_FIXED, rounds=1)
    assert np.linalg.norm(vector(found.seen[0][1][0])) == pytest.approx(1.0, rel=1e-5)
    wrong = sent(canaries, fixedclipping_mod, outer=CLIENT_FIXED, rounds=1)
    assert np.linalg.norm(vector(wrong.seen[0][1][0])) == pytest.approx(10.0, rel=1e-5)


def test_another_number_of_examples_is_stated() -> None:
    canaries = CanaryClients([1], clip=1.0, members=[True], examples=77)
    metrics = [one[1]["num-examples"] for _, one in sorted(sent(canaries).seen[0].items())]
    assert metrics == [10, 77, 10]


def test_counters_stay_and_types_too() -> None:
    start = ArrayRecord({
        "weight": Array(np.ones(50, np.float16)),
        "count": Array(np.array(7, np.int64)),
    })  # fmt: skip
    clients = ClientApp(mods=[CanaryClients([0], clip=1.0, members=[True])])

    @clients.train()
    def train(msg: Message, ctx: Context) -> Message:
        metrics = MetricRecord({"num-examples": 5})
        content = RecordDict({"arrays": msg.content["arrays"], "metrics": metrics})
        return Message(content, reply_to=msg)

    record = sent(rounds=1, clients=(start, clients)).seen[0][0][0]
    assert record["weight"].numpy().dtype == np.float16
    assert (record["count"].numpy().dtype, int(record["count"].numpy())) == (np.int64, 7)
    assert np.linalg.norm(record["weight"].numpy() - 1.0) == pytest.approx(10.0, rel=1e-2)


def test_an_error_of_a_client_stays_an_error() -> None:
    clients = ClientApp(mods=[CanaryClients([0], clip=1.0, members=[True])])

    @clients.train()
    def train(msg: Message, ctx: Context) -> Message:
        return Message(Error(code=0, reason="no"), reply_to=msg)

    assert sent(rounds=1, clients=(zeros(SHAPES), clients)).seen == [{}]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"nodes": [1, 1]}, "expected different ones"),
        ({"nodes": [1], "norm": 0.0}, "norm of a planted client is 0"),
        ({"nodes": [1], "clip": -1.0}, "clip is -1"),
        ({"nodes": [1], "examples": 0}, "number of examples is 0"),
        ({"nodes": [1, 2], "members": [True]}, "1 members for 2 planted clients"),
        ({"nodes": [1], "members": [False]}, "none of the 1 planted clients takes part"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        CanaryClients(**settings)


def test_an_unknown_clip_is_refused() -> None:
    with pytest.raises(Exception, match="name clip="):
        sent(CanaryClients([0], members=[True]))

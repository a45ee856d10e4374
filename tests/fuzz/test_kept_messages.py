"""The keepers under odd messages: the training goes on, and nothing that is sent changes."""

import logging
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leakgauge.core.checks import InputError
from leakgauge.integrations.kept_reading import read_kept
from support.odd_messages import (
    NAMES,
    NUMBERS,
    WORDS,
    folder_for,
    objects,
    odd_arrays,
    plain_arrays,
    seen,
)

COUNT = 200
"""Number of messages in each direction, for each keeper."""

KEYS = ("arrays", "arrays", "arrays", "model", "controls", "")

pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Keep the log in memory: where the disk is full, a terminal would not print it either."""
    for name in ("leakgauge", "flwr"):
        logging.getLogger(name).propagate = False
    yield
    for name in ("leakgauge", "flwr"):
        logging.getLogger(name).propagate = True


class Ends(Counter[str]):
    """How exchanges ended: kept or not, by the folder's case."""

    def note(self, folder: Path, case: str) -> None:
        """Count the end of one exchange; what was kept can be read."""
        kept = list(folder.rglob("*.yaml")) if folder.is_dir() else []
        if kept and case == "sound":
            homes = [folder, *(folder / "runs").glob("*")]
            for one in (read_kept(home) for home in homes if list(home.glob("rounds/*/*.yaml"))):
                for update in one.updates:
                    assert all(update.tensors())
        self[f"{case}, {'kept' if kept else 'not kept'}"] += 1

    def check(self) -> None:
        """Ask that both ends came, and that nothing was kept where that is impossible."""
        assert self["sound, kept"] > 20, self
        assert self["sound, not kept"] > 20, self
        for case in ("a file", "below a file", "full"):
            assert self[f"{case}, not kept"] > 3, self
            assert not self[f"{case}, kept"], self


def record(draw: random.Random, *, same: bool) -> Any:
    """Return an array record of Flower, often with plain arrays under plain names."""
    from flwr.app import ArrayRecord
    from flwr.app.message.array import Array

    if same or draw.random() < 0.4:
        return ArrayRecord({n: Array(np.full((2, 3), 0.5, np.float32)) for n in ("weight", "bias")})
    known = list((plain_arrays() | odd_arrays()).values())
    arrays = [Array(one) for one in known]
    arrays += [
        Array("float32", (2,), "numpy.ndarray", b"garbage"),
        Array("float32", (2,), "numpy.ndarray", b""),
        Array("bfloat16", (2,), "torch.Tensor", b"\0\0\0\0"),
        Array("", (), "numpy.ndarray", Array(known[0]).data),  # NumPyClient
    ]
    return ArrayRecord({draw.choice(NAMES): draw.choice(arrays) for _ in range(draw.randrange(5))})


def values(draw: random.Random, *names: str, numeric: bool = False) -> dict[str, Any]:
    """Return odd values of some names."""
    odd: list[Any] = [one for one in NUMBERS if not isinstance(one, bool)]
    odd += [[1, 2], [0.5, float("nan")], []]
    if not numeric:
        odd += [*WORDS, b"", b"\xff", True, ["a", "b"], [b"x"], [True]]
    return {name: draw.choice(odd) for name in names if draw.random() < 0.6}


def contents(draw: random.Random, *, reply: bool, plain: bool) -> Any:
    """Return the records of a message."""
    from flwr.app import ConfigRecord, MetricRecord, RecordDict

    count = 1 if plain else draw.choice([0, 1, 1, 1, 2, 3])
    found: dict[str, Any] = {draw.choice(KEYS): record(draw, same=plain) for _ in range(count)}
    if plain:
        found = {"arrays": next(iter(found.values()))}
    if reply:
        count_of = values(draw, "num-examples", "partition-id", "loss", "é", numeric=True)
        found["metrics"] = MetricRecord({} if plain else count_of)
    elif draw.random() < 0.9:
        config = values(draw, "lr", "local-epochs", "batch_size", "momentum", "optimizer", "x")
        number = {} if plain else values(draw, "server-round")
        found["config"] = ConfigRecord({"server-round": 1, **config, **number})
    return RecordDict(found)


def look(message: Any) -> Any:
    """Return all that a message of Flower holds."""
    held = dict(vars(message.metadata))
    records = [] if not message.has_content() else [
        (key, type(one).__name__, [
            (name, vars(v) if hasattr(v, "stype") else seen(v)) for name, v in one.items()
        ])
        for key, one in message.content.items()
    ]  # fmt: skip
    return repr((held, message.has_error(), records))


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the process the ids that a message takes from a running federation."""
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(identity, name, 1)


def instruction(draw: random.Random, *, plain: bool, node: int = 7) -> Any:
    from flwr.app import Message

    kind = "train" if plain else draw.choice(["train", "train", "train.own", "query", "evaluate"])
    content = contents(draw, reply=False, plain=plain)
    return Message(content, node, kind, group_id=draw.choice(["", "1", *WORDS]))


def answer(draw: random.Random, to: Any, *, plain: bool) -> Any:
    from flwr.app import Error, Message

    if not plain and draw.random() < 0.1:
        return Message(Error(code=0, reason="no"), reply_to=to)
    return Message(contents(draw, reply=True, plain=plain), reply_to=to)


@pytest.mark.usefixtures("numbered")
def test_the_mod_lets_every_message_pass_unchanged(tmp_path: Path) -> None:
    flower = pytest.importorskip("leakgauge.integrations.flower")
    from flwr.app import Context, Message, RecordDict

    ends = Ends()
    for number in range(COUNT):
        draw = random.Random(number)
        folder = tmp_path / str(number)
        folder.mkdir()
        plain = draw.random() < 0.4
        sent = instruction(draw, plain=plain)
        reply = answer(draw, sent, plain=plain)
        before = look(sent), look(reply)
        node = values(draw, "partition-id", "num-partitions")
        ctx = Context(1, 7, node, RecordDict(), values(draw, "lr", "batch-size", "token"))
        told = repr((node, ctx.run_config))
        given = []

        def app(msg: Message, ctx: Context, reply: Any = reply, given: Any = given) -> Message:
            given.append(msg)
            return reply

        with folder_for(folder, draw) as (place, case):
            client = draw.choice([None, None, *WORDS])
            mod = flower.KeepUpdates(place, client=client)
            assert mod(sent, ctx, app) is reply
        assert given == [sent]
        assert (look(sent), look(reply)) == before, number
        assert repr((node, ctx.run_config)) == told
        ends.note(place, case)
    ends.check()


@pytest.mark.usefixtures("numbered")
def test_the_wrapped_strategy_gets_and_gives_every_message_unchanged(tmp_path: Path) -> None:
    flower = pytest.importorskip("leakgauge.integrations.flower")
    from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
    from flwr.serverapp.strategy import FedAvg

    class Given(FedAvg):
        """Sends given messages, and notes the replies that it gets."""

        messages: list[Any]
        replies: list[Any]

        def configure_train(self, *given: Any) -> Iterable[Any]:
            return iter(self.messages)

        def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> Any:
            self.replies = list(replies)
            return made

    ends = Ends()
    made = ArrayRecord(), MetricRecord()
    for number in range(COUNT):
        draw = random.Random(number)
        folder = tmp_path / str(number)
        folder.mkdir()
        inner = Given()
        plain = draw.random() < 0.4
        inner.messages = [instruction(draw, plain=plain, node=node) for node in (7, 8)]
        replies = [answer(draw, one, plain=plain) for one in inner.messages]
        every = [*inner.messages, *replies]
        before = list(map(look, every))
        with folder_for(folder, draw) as (place, case):
            outer = flower.KeepingStrategy(inner, place)
            sent = outer.configure_train(1, ArrayRecord(), ConfigRecord(), None)
            assert list(map(id, sent)) == list(map(id, inner.messages))
            assert outer.aggregate_train(1, iter(replies)) is made
        assert list(map(id, inner.replies)) == list(map(id, replies))
        assert list(map(look, every)) == before, number
        ends.note(place, case)
    ends.check()


def test_the_filter_of_nvflare_lets_every_message_pass_unchanged(tmp_path: Path) -> None:
    nvflare = pytest.importorskip("leakgauge.integrations.nvflare")
    from nvflare.apis.dxo import DXO, DataKind, MetaKey
    from nvflare.apis.filter import FilterChainType, FilterContextKey
    from nvflare.apis.fl_constant import ReservedKey
    from nvflare.apis.fl_context import FLContext

    ends = Ends()
    everything = list((plain_arrays() | odd_arrays() | objects()).values())
    chains = FilterChainType.TASK_DATA_CHAIN, FilterChainType.TASK_RESULT_CHAIN

    def dxo(draw: random.Random, *, plain: bool) -> Any:
        data = {"weight": np.ones((2, 3), np.float32)} if plain or draw.random() < 0.5 else {}
        if not plain:
            names = [*NAMES, 1, None, ("a", "b")]
            data |= {draw.choice(names): draw.choice(everything) for _ in range(draw.randrange(4))}
        kinds = [DataKind.WEIGHTS, DataKind.WEIGHTS, DataKind.WEIGHT_DIFF, DataKind.METRICS]
        kind = DataKind.WEIGHTS if plain else draw.choice(kinds)
        meta = {MetaKey.CURRENT_ROUND: 0, "num_examples": 4}
        if not plain:
            meta |= values(draw, MetaKey.CURRENT_ROUND, "num_examples", "loss")
            meta |= values(draw, MetaKey.NUM_STEPS_CURRENT_ROUND)
        return DXO(kind, data, meta)

    for number in range(COUNT):
        draw = random.Random(number)
        folder = tmp_path / str(number)
        folder.mkdir()
        plain = draw.random() < 0.4
        ctx = FLContext()
        name = "site-1" if plain else draw.choice(["", "site-1", *NAMES])
        ctx.set_prop(ReservedKey.IDENTITY_NAME, name, private=False)
        ctx.set_prop(ReservedKey.RUN_NUM, f"job {number}", private=False)
        parts = [dxo(draw, plain=plain) for _ in chains]
        if not plain and draw.random() < 0.2:
            parts = [DXO(DataKind.COLLECTION, {"a": one, "b": dxo(draw, plain=True)})
                     for one in parts]  # fmt: skip
        with folder_for(folder, draw) as (place, case):
            kept = nvflare.KeepUpdates(str(place))
            for chain, part in zip(chains, parts, strict=True):
                kept.set_prop(FilterContextKey.CHAIN_TYPE, chain)
                shareable = part.to_shareable()
                before = seen(shareable), id(part.data)
                assert kept.process(shareable, ctx) is shareable
                assert (seen(shareable), id(shareable["DXO"]["data"])) == before, number
        ends.note(place, case)
    ends.check()


def test_a_folder_with_room_is_read_and_a_full_one_is_not(tmp_path: Path) -> None:
    """The cases of the other tests are what their names say."""
    met = set()
    for number in range(60):
        folder = tmp_path / str(number)
        folder.mkdir()
        with folder_for(folder, random.Random(number)) as (place, case):
            try:
                place.mkdir(exist_ok=True)
                (place / "x").write_bytes(b"x" * 100)
            except OSError:
                met.add((case, False))
            else:
                met.add((case, True))
    assert met == {("sound", True), ("a file", False), ("below a file", False), ("full", False)}
    with pytest.raises(InputError, match="no such folder"):
        read_kept(tmp_path / "none")

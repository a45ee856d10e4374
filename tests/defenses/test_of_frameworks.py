"""Defenses of Flower and NVFlare, against the originals where these are installed."""

from typing import Any

import numpy as np
import pytest
import torch

from leakgauge.core.checks import InputError
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Grads
from leakgauge.defenses import parse_defense
from leakgauge.defenses.local_dp import AdaptiveClipping

SURE = 1e9
"""Epsilon so large that the noise is negligible."""


def update(rows: int = 3) -> dict[str, torch.Tensor]:
    """Updates of very different size: clipping changes some of them."""
    rng = torch_stream(0, "update")
    scale = torch.logspace(-1, 1, rows)
    shapes = {"w": (4, 5), "b": (5,), "s": ()}
    return {
        name: torch.randn(rows, *shape, generator=rng) * scale.view(-1, *[1] * len(shape))
        for name, shape in shapes.items()
    }


def sent(text: str, grads: Grads, *, seed: int = 0) -> Grads:
    rows = len(next(iter(grads.values())))
    rngs = [torch_stream(seed, "row", row) for row in range(rows)]
    return parse_defense(text, batch_size=16).update(grads, rngs)


def arrays(grads: Grads, row: int) -> list[Any]:
    return [leaf[row].numpy().copy() for leaf in grads.values()]


def flower() -> Any:
    pytest.importorskip("flwr", reason='needs pip install "leakgauge[flower]"')
    from flwr.supercore import differential_privacy

    return differential_privacy


@pytest.mark.parametrize("name", ["fixed-clipping", "adaptive-clipping"])
def test_clipping_is_that_of_flower(name: str) -> None:
    original, grads = flower(), update()
    del grads["s"]  # Flower leaves a single number as it is
    ours = sent(f"{name}:norm=1.5", grads)
    for row in range(3):
        after = arrays(grads, row)
        before = [np.zeros_like(one) for one in after]
        original.compute_clip_model_update(after, before, 1.5)
        for own, theirs in zip(arrays(ours, row), after, strict=True):
            np.testing.assert_allclose(own, theirs, rtol=1e-5)


def test_the_norm_moves_as_on_flower_s_server() -> None:
    pytest.importorskip("flwr", reason='needs pip install "leakgauge[flower]"')
    from flwr.serverapp.strategy import DifferentialPrivacyClientSideAdaptiveClipping, FedAvg

    server = DifferentialPrivacyClientSideAdaptiveClipping(
        FedAvg(), 0.0, 4, initial_clipping_norm=0.3, target_clipped_quantile=0.6,
        clip_norm_lr=0.4, clipped_count_stddev=0.0,
    )  # fmt: skip
    ours = AdaptiveClipping(norm=0.3, quantile=0.6, rate=0.4)
    for bits in ([1, 1, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0]):
        moved(server, bits)
        ours = ours.after(bits)
        assert ours.norm == pytest.approx(server.clipping_norm)


def moved(server: Any, bits: list[int]) -> None:
    """Let Flower's server move its norm by the clients' bits."""
    from flwr.app import Message, MetricRecord, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    replies = []
    for bit in bits:
        content = RecordDict({"metrics": MetricRecord({"norm_bit": bit, "num-examples": 1})})
        replies.append(Message(content, 1, "train"))
    server._update_clip_norm_from_replies(replies)


def test_local_dp_clips_and_adds_the_noise_of_flower() -> None:
    original = flower()
    text = "local-dp:clip=1.5,sensitivity=2,epsilon=0.7,delta=0.001"
    grads = {"w": torch.ones(1, 200, 200)}
    ours = sent(text, grads)["w"][0].numpy()
    after = [grads["w"][0].numpy().copy()]
    original.compute_clip_model_update(after, [np.zeros_like(after[0])], 1.5)
    deviation = 2 * np.sqrt(2 * np.log(1.25 / 0.001)) / 0.7
    assert parse_defense(text, batch_size=1).noise_std == pytest.approx(deviation)
    noise = ours - after[0]
    assert noise.std() == pytest.approx(deviation, rel=0.03)
    assert abs(noise.mean()) < 4 * deviation / 200
    assert noised_by_flower(grads["w"][0].numpy()).std() == pytest.approx(deviation, rel=0.03)


def noised_by_flower(change: Any) -> Any:
    """The noise that Flower's own mod adds to a change of weights."""
    from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
    from flwr.clientapp.mod import LocalDpMod
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    np.random.seed(0)  # noqa: NPY002 - Flower draws from it

    def message(values: Any, **rest: Any) -> Message:
        record = ArrayRecord({"w": Array(values)})
        return Message(RecordDict({"arrays": record}), **rest)

    asked = message(np.zeros_like(change), dst_node_id=1, message_type="train")
    context = Context(1, 1, {}, RecordDict(), {})
    mod = LocalDpMod(1.5, 2.0, 0.7, 0.001)
    out = mod(asked, context, lambda msg, _: message(change, reply_to=msg))
    clipped = change * 1.5 / np.linalg.norm(change)
    return out.content["arrays"]["w"].numpy() - clipped


def test_the_noise_of_local_dp_is_the_classical_one() -> None:
    text = "local-dp:clip=1,sensitivity=2,epsilon=0.7,delta=0.001"
    defense = parse_defense(text, batch_size=1)
    assert defense.noise_std == pytest.approx(2 * np.sqrt(2 * np.log(1.25 / 0.001)) / 0.7)
    assert defense.adds_noise
    still = defense.without_noise().update({"w": torch.full((1, 4), 3.0)}, [torch.Generator()])
    assert float(still["w"].norm()) == pytest.approx(1.0)


@pytest.mark.parametrize("percentile", [0, 37.5, 100])
def test_percentile_privacy_against_numpy(percentile: float) -> None:
    grads = {name: leaf for name, leaf in update().items() if name != "s"}
    ours = sent(f"percentile-privacy:percentile={percentile},gamma=0.3", grads)
    for row in range(3):
        flat = np.concatenate([one.ravel() for one in arrays(grads, row)])
        cutoff = np.percentile(np.abs(flat), percentile)
        wanted = np.clip(np.where(np.abs(flat) < cutoff, 0, flat), -0.3, 0.3)
        found = np.concatenate([one.ravel() for one in arrays(ours, row)])
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


def test_svt_sends_a_share_of_large_coordinates() -> None:
    values = torch.cat([torch.full((1, 100), 0.8), torch.zeros(1, 900)], dim=1)
    found = sent(f"svt:fraction=0.1,epsilon={SURE},noise={SURE},gamma=0.5,tau=0.1", {"w": values})
    assert not found["w"][0, 100:].any()
    kept = found["w"][0, :100] != 0
    # Of 100 draws with replacement among 100, a share of 1 - 1/e are different.
    assert float(kept.double().mean()) == pytest.approx(1 - np.exp(-1), abs=0.12)
    assert torch.allclose(found["w"][0, :100][kept], torch.tensor(0.5))


def filtered(name: str, data: dict[str, Any], steps: int, **settings: Any) -> dict[str, Any]:
    """What NVFlare's own filter makes of weight differences."""
    pytest.importorskip("nvflare", reason='needs pip install "leakgauge[nvflare]"')
    from nvflare.apis.dxo import DXO, DataKind, MetaKey
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy

    kind = {"percentile": PercentilePrivacy, "svt": SVTPrivacy}[name]
    meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: steps}
    dxo = DXO(DataKind.WEIGHT_DIFF, data, meta)
    found: dict[str, Any] = kind(**settings).process_dxo(dxo, Shareable(), FLContext()).data
    return found


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("percentile", [0, 10, 63.5, 100])
def test_percentile_privacy_is_that_of_nvflare(percentile: float, steps: int) -> None:
    grads = update()
    ours = sent(f"percentile-privacy:percentile={percentile},gamma=0.3,steps={steps}", grads)
    for row in range(3):
        data = {name: leaf[row].numpy().copy() for name, leaf in grads.items()}
        theirs = filtered("percentile", data, steps, percentile=percentile, gamma=0.3)
        for name, leaf in ours.items():
            np.testing.assert_allclose(leaf[row].numpy(), theirs[name], rtol=1e-4, atol=1e-7)


def test_without_noise_svt_sends_what_nvflare_sends() -> None:
    """With as many large coordinates as are sent, all choices are forced but for repeats."""
    values = torch.tensor([[0.9, 0.0, -0.8, 0.0, 0.7, 0.0, 0.0, 0.0, 0.0, 0.0]])
    ours = sent(f"svt:fraction=0.3,epsilon={SURE},noise={SURE},gamma=0.75,tau=0.1", {"w": values})
    data = {"w": values[0].numpy().copy()}
    settings = {"fraction": 0.3, "epsilon": SURE, "noise_var": SURE, "gamma": 0.75, "tau": 0.1}
    theirs = filtered("svt", data, 1, **settings)["w"]
    allowed = torch.tensor([0.75, 0, -0.75, 0, 0.7, 0, 0, 0, 0, 0])
    for found in (ours["w"][0], torch.from_numpy(theirs)):
        kept = found != 0
        assert 1 <= int(kept.sum()) <= 3
        torch.testing.assert_close(found[kept].float(), allowed[kept], rtol=0, atol=1e-5)


@pytest.mark.calibration
def test_svt_sends_as_many_and_as_noisy_coordinates_as_nvflare() -> None:
    settings = {"fraction": 0.2, "epsilon": 50.0, "gamma": 0.5, "tau": 0.2}
    values = torch.randn(1, 4000, generator=torch_stream(0, "values"))
    words = ",".join(f"{key}={value}" for key, value in settings.items())
    ours = sent(f"svt:{words},noise=2", {"w": values})["w"][0].numpy()
    np.random.seed(0)  # noqa: NPY002 - NVFlare draws from it
    theirs = filtered("svt", {"w": values[0].numpy().copy()}, 1, noise_var=2.0, **settings)["w"]
    pair = ours, theirs
    counts = [int((one != 0).sum()) for one in pair]
    assert counts[0] == pytest.approx(counts[1], rel=0.05)
    sizes = [float(np.abs(one[one != 0]).mean()) for one in pair]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.15)
    large = [float((np.abs(values[0].numpy()[one != 0])).mean()) for one in pair]
    assert large[0] == pytest.approx(large[1], rel=0.1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("local-dp:clip=0,sensitivity=1,epsilon=1,delta=0.1", "clipping norm is 0"),
        ("local-dp:clip=1,sensitivity=1,epsilon=0,delta=0.1", "epsilon of local-dp is 0"),
        ("local-dp:clip=1,sensitivity=1,epsilon=1,delta=1", "delta of local-dp is 1"),
        ("fixed-clipping:norm=-1", "clipping norm is -1"),
        ("adaptive-clipping:quantile=2", "quantile of adaptive-clipping is 2"),
        ("percentile-privacy:percentile=101", "percentile is 101"),
        ("svt:fraction=0", "fraction of svt is 0"),
        ("fixed-clipping:norm=1,layers=first", "fixed-clipping takes no layers"),
    ],
)
def test_wrong_settings_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_defense(text, batch_size=16)

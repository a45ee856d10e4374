"""The filters of a federation's configuration, against the classes of NVFlare and Flower."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leakgauge.core.checks import InputError
from leakgauge.integrations.filter_arguments import PARAMETERS
from leakgauge.integrations.filter_files import read_filters
from leakgauge.integrations.filter_promises import PromiseTerms, epsilon_kept, promise_of
from leakgauge.integrations.filter_words import OPEN, WITHOUT_NOISE
from leakgauge.integrations.switched_on import SwitchedOn
from leakgauge.privacy.accounting import delta_gaussian
from leakgauge.privacy.promises import Neighbours

SVT = "nvflare.app_common.filters.svt_privacy.SVTPrivacy"
PERCENTILE = "nvflare.app_common.filters.percentile_privacy.PercentilePrivacy"
FLIP = {"clipping_norm": 1, "sensitivity": 1e-4, "epsilon": 10, "delta": 1e-5}


def original(name: str) -> Any:
    """Return the class or function of a filter in its package."""
    if name in ("SVTPrivacy", "PercentilePrivacy", "ExcludeVars"):
        pytest.importorskip("nvflare", reason='needs pip install "leakgauge[nvflare]"')
        from nvflare.app_common import filters

        return getattr(filters, name)
    pytest.importorskip("flwr", reason='needs pip install "leakgauge[flower]"')
    from flwr.clientapp import mod
    from flwr.serverapp import strategy

    return getattr(mod, name, None) or getattr(strategy, name)


@pytest.mark.parametrize("name", PARAMETERS)
def test_arguments_and_defaults_are_those_of_the_package(name: str) -> None:
    theirs = original(name)
    if not inspect.isclass(theirs):
        assert PARAMETERS[name] == {}  # a mod without settings
        return
    parameters = inspect.signature(theirs).parameters
    known = {key: one.default for key, one in parameters.items()}
    for other in ("strategy", "accountant"):  # objects, which no file can hold
        known.pop(other, None)
    assert PARAMETERS[name] == known


def test_nvflare_counts_the_epsilon_that_we_count() -> None:
    original("SVTPrivacy")
    from nvflare.apis.dxo import DXO, DataKind
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.filters import SVTPrivacy

    filter_ = SVTPrivacy()
    update = np.random.default_rng(0).normal(size=(50, 40)) * 1e-5
    dxo = DXO(DataKind.WEIGHT_DIFF, data={"w": update, "count": np.array(7.0)})
    sent = filter_.process_dxo(dxo, Shareable(), FLContext())
    assert sent is not None
    assert float(sent.data["count"]) == 7.0  # what ``OPEN`` says
    found = promise_of(SwitchedOn("SVTPrivacy", SVT, {}), PromiseTerms(parameters=2001))
    assert found.one is not None
    count = filter_.get_privacy_ledger()[0]["epsilon_release"]
    assert found.one.least == pytest.approx(count)
    assert found.one.least < filter_.get_privacy_spent() < found.one.epsilon


def test_flower_leaves_a_single_number_as_it_is() -> None:
    original("LocalDpMod")
    from flwr.supercore import differential_privacy as flower

    after = [np.full(3, 10.0), np.array(10.0)]
    flower.compute_clip_model_update(after, [np.zeros(3), np.array(0.0)], 1.0)
    flower.add_gaussian_noise_inplace(after, 5.0)
    assert after[1] == 10.0
    found = promise_of(SwitchedOn("LocalDpMod", "LocalDpMod", FLIP))
    assert OPEN in found.notes


def test_yaml_of_mods_is_read_and_text_is_a_number(tmp_path: Path) -> None:
    path = tmp_path / "mods.yaml"
    path.write_text(
        "rounds: 4\nmods:\n"
        "  - LocalDpMod: {clipping_norm: 1, sensitivity: 1e-4, epsilon: 10, delta: 1e-5}\n"
        "  - fixedclipping_mod\n"
        "strategy:\n  DifferentialPrivacyClientSideFixedClipping:\n"
        "    {noise_multiplier: 1, clipping_norm: 10, num_sampled_clients: 20}\n"
    )
    found = read_filters(path)
    local, clipping, central = (promise_of(one, PromiseTerms(rounds=4)) for one in found.filters)
    assert local.claim is not None
    assert local.claim.epsilon == 10
    assert "the server" in clipping.why
    assert central.one is not None
    assert central.training is not None
    # Clients that are replaced move the noised mean by twice its noise, in 4 rounds by 4 times.
    for follows, moved in ((central.one, 2.0), (central.training, 4.0)):
        assert delta_gaussian(follows.epsilon, moved) == pytest.approx(1e-5)


def test_a_copy_of_a_filter_is_recognised_and_this_is_said() -> None:
    copy = {"clip": 1, "sensitivity": 1e-4, "epsilon": 10, "delta": 1e-5, "seed": 3}
    found = promise_of(SwitchedOn("DPFilter", "flip.filters.DPFilter", copy))
    plain = promise_of(SwitchedOn("LocalDpMod", "LocalDpMod", FLIP))
    assert found.one == plain.one
    assert found.notes[0] == (
        "flip.filters.DPFilter is assumed to be Flower's LocalDpMod, by its arguments"
    )
    assert promise_of(SwitchedOn("SVTPrivacy", "my.SVTPrivacy", {})).notes[0].startswith(
        "my.SVTPrivacy is assumed"
    )  # fmt: skip


def test_an_unknown_filter_is_not_judged() -> None:
    found = promise_of(SwitchedOn("GaussianPrivacy", "mine.GaussianPrivacy", {"sigma0": 0.1}))
    assert not found.known
    assert epsilon_kept([found]) is None
    assert "nothing is said of it" in found.notes[0]


def test_the_advised_setting_keeps_the_claim() -> None:
    asked = PromiseTerms(Neighbours("client", "replace"), rounds=10, parameters=1000)
    local = promise_of(SwitchedOn("LocalDpMod", "LocalDpMod", FLIP), asked)
    write = float(local.instead.partition("=")[2])
    better = promise_of(
        SwitchedOn("LocalDpMod", "LocalDpMod", {**FLIP, "sensitivity": write}), asked
    )
    assert better.training is not None
    assert 9.8 < better.training.epsilon <= 10
    assert better.instead == ""
    sparse = promise_of(SwitchedOn("SVTPrivacy", SVT, {}), asked)
    settings = dict(part.split("=") for part in sparse.instead.partition(";")[0].split(", "))
    settings = {key: float(value) for key, value in settings.items()}
    again = promise_of(SwitchedOn("SVTPrivacy", SVT, settings), asked)
    assert again.training is not None
    assert again.training.epsilon <= 0.1 * 1.001


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"fractoin": 0.1}, "no argument 'fractoin'; did you mean 'fraction'?"),
        ({"epsilon": "much"}, "epsilon is 'much'"),
        ({"epsilon": True}, "epsilon is True; expected a number"),
        ({"epsilon": [1]}, r"epsilon is \[1\]; expected a number"),
        ({"epsilon": -1}, "epsilon is -1"),
    ],
)
def test_a_wrong_argument_is_refused(arguments: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        promise_of(SwitchedOn("SVTPrivacy", SVT, arguments))


def test_a_missing_argument_is_refused() -> None:
    with pytest.raises(InputError, match="LocalDpMod lacks sensitivity"):
        promise_of(SwitchedOn("LocalDpMod", "LocalDpMod", {"clipping_norm": 1}))


def of(name: str, scope: str = "", **arguments: Any) -> Any:
    return promise_of(SwitchedOn(name, name, arguments, scope=scope))


def test_the_best_filter_of_a_scope_and_the_worst_scope_count() -> None:
    weak, strong = (of("LocalDpMod", "a", **{**FLIP, "sensitivity": one}) for one in (1, 3))
    other = of("LocalDpMod", "b", **{**FLIP, "sensitivity": 2})
    for promises, scopes, best in (
        ((weak, strong), ("a",), strong),
        ((weak, strong, other), ("a", "b"), other),
    ):
        assert epsilon_kept(promises, scopes) == best.training
    assert epsilon_kept((weak, strong), ("a", "b")) is None  # nothing is filtered in b


def test_noise_of_the_server_protects_the_published_model_alone() -> None:
    central = of(
        "DifferentialPrivacyServerSideFixedClipping",
        noise_multiplier=1, clipping_norm=1, num_sampled_clients=10,
    )  # fmt: skip
    assert epsilon_kept([central]) is None
    assert epsilon_kept([central], published=True) == central.training
    assert any("10 clients of equal weight" in note for note in central.notes)
    local = of("LocalDpMod", **{**FLIP, "sensitivity": 9})
    assert epsilon_kept([central, local], published=True) == local.training


def test_a_client_of_more_weight_needs_more_noise_in_flower() -> None:
    """Flower's own accounting refuses weights that differ, as the note says."""
    original("DifferentialPrivacyServerSideFixedClipping")
    from flwr.serverapp.strategy import dp_fixed_clipping

    assert "equal client weights" in inspect.getsource(dp_fixed_clipping)


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("PercentilePrivacy", {"gamma": 0}, "its gamma is 0, so it does nothing"),
        ("PercentilePrivacy", {"percentile": 101}, "its percentile is 101, so it does nothing"),
        ("PercentilePrivacy", {}, "adds no noise"),
        ("ExcludeVars", {}, "names nothing, so it does nothing"),
        ("ExcludeVars", {"exclude_vars": [3]}, "names nothing, so it does nothing"),
        ("ExcludeVars", {"exclude_vars": "norm"}, "leaves arrays out"),
        ("HEModelEncryptor", {"encrypt_layers": None}, "it encrypts"),
    ],
)
def test_what_a_filter_without_noise_does_is_said(name: str, arguments: Any, why: str) -> None:
    found = of(name, **arguments)
    assert why in found.why
    assert found.known
    assert epsilon_kept([found]) is None


def test_a_filter_that_does_nothing_does_nothing_in_nvflare() -> None:
    original("ExcludeVars")
    from nvflare.apis.dxo import DXO, DataKind
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.filters import ExcludeVars, PercentilePrivacy

    for filter_ in (ExcludeVars(), ExcludeVars([3]), PercentilePrivacy(gamma=0),
                    PercentilePrivacy(percentile=101)):  # fmt: skip
        dxo = DXO(DataKind.WEIGHT_DIFF, data={"w": np.ones((2, 2))})
        assert filter_.process_dxo(dxo, Shareable(), FLContext()) is None  # unchanged


@pytest.mark.parametrize("name", WITHOUT_NOISE)
def test_filters_without_noise_are_in_their_packages(name: str) -> None:
    package = "flwr" if name.endswith("_mod") else "nvflare"
    root = Path(pytest.importorskip(package).__path__[0])
    word = f"def {name}(" if package == "flwr" else f"class {name}("
    assert any(word in path.read_text() for path in root.rglob("*.py"))


def test_a_filter_of_other_data_than_models_counts_as_none() -> None:
    both = [of("SVTPrivacy", data_kinds=[one]) for one in ("METRICS", "WEIGHT_DIFF")]
    assert [one.covers for one in both] == [False, True]
    assert all("alone; other data leave as they are" in one.notes[-1] for one in both)


def test_flower_leaves_metrics_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    original("LocalDpMod")
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    for key in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(identity, key, 1, raising=False)
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp.mod import LocalDpMod

    def content(loss: float) -> Any:
        arrays = ArrayRecord([np.full(3, loss, dtype=np.float32)])
        return RecordDict({"arrays": arrays, "metrics": MetricRecord({"loss": loss})})

    asked = Message(content(0.0), dst_node_id=1, message_type="train")
    sent = LocalDpMod(1, 0.01, 1, 1e-5)(
        asked, None, lambda msg, _: Message(content(7.0), reply_to=msg)
    )
    assert sent.content["metrics"]["loss"] == 7.0  # what ``OPEN`` says
    assert np.abs(sent.content["arrays"].to_numpy_ndarrays()[0]).max() < 6.9  # clipped and noised


def test_the_advised_noise_of_an_own_filter_keeps_its_epsilon() -> None:
    asked = PromiseTerms(Neighbours("client", "add"), rounds=5)
    advice = promise_of(SwitchedOn("PercentilePrivacy", "PercentilePrivacy", {}), asked).instead
    noise = float(advice.partition("standard deviation ")[2].split()[0])
    assert delta_gaussian(8.0, 5**0.5 / noise) <= 1e-5 < delta_gaussian(7.9, 5**0.5 / noise)

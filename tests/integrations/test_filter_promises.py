"""The filters of a federation's configuration, against the classes of NVFlare and Flower."""

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leakgauge.core.checks import InputError
from leakgauge.integrations.filter_files import (
    ARRIVING,
    AT_SERVER,
    OUTGOING,
    SwitchedOn,
    read_filters,
)
from leakgauge.integrations.filter_promises import _PARAMETERS, SCALARS, PromiseTerms, promise_of
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


@pytest.mark.parametrize("name", _PARAMETERS)
def test_arguments_and_defaults_are_those_of_the_package(name: str) -> None:
    theirs = original(name)
    if not inspect.isclass(theirs):
        assert _PARAMETERS[name] == {}  # a mod without settings
        return
    parameters = inspect.signature(theirs).parameters
    known = {key: one.default for key, one in parameters.items()}
    for other in ("strategy", "accountant"):  # objects, which no file can hold
        known.pop(other, None)
    assert _PARAMETERS[name] == known


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
    assert float(sent.data["count"]) == 7.0  # what ``SCALARS`` says
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
    assert SCALARS in found.notes


@pytest.fixture
def client(tmp_path: Path) -> Any:
    """Return a function that writes a client's configuration and reads its filters."""

    def read(*filters: Any, name: str = "config_fed_client.json", **others: Any) -> Any:
        chain = {"tasks": ["train"], "filters": list(filters)}
        content = {"format_version": 2, "task_result_filters": [chain], **others}
        (tmp_path / name).write_text(json.dumps(content))
        return read_filters(tmp_path / name)

    return read


def test_filters_are_read_by_path_and_by_name(client: Any) -> None:
    found = client({"path": SVT, "args": {"fraction": 0.2}}, {"name": "PercentilePrivacy"})
    assert [one.name for one in found.filters] == ["SVTPrivacy", "PercentilePrivacy"]
    assert dict(found.filters[0].arguments) == {"fraction": 0.2}
    assert all(one.covers for one in found.filters)
    assert found.rounds is None


def test_results_of_other_tasks_leave_without_the_filter(client: Any) -> None:
    tasks = [{"tasks": ["train", "validate", "submit_model"], "executor": {}}]
    (one,) = client({"path": SVT}, executors=tasks).filters
    assert one.notes == ("results of the task 'submit_model' leave without it",)
    assert not one.covers


def test_a_filter_of_what_arrives_or_on_the_server_is_named(client: Any) -> None:
    chain = [{"tasks": ["train"], "filters": [{"path": SVT}]}]
    (one,) = client(task_data_filters=chain).filters
    assert one.notes == (ARRIVING,)
    flow = [{"id": "sag", "args": {"num_rounds": 20}}]
    found = client({"path": SVT}, workflows=flow, task_data_filters=chain)
    assert [one.notes for one in found.filters] == [(AT_SERVER,), (OUTGOING,)]
    assert found.rounds == 20
    turned = [{"tasks": ["train"], "direction": "out", "filters": [{"path": SVT}]}]
    assert client(task_data_filters=turned).filters[0].covers


def test_a_privacy_policy_of_a_site_is_read(tmp_path: Path) -> None:
    scopes = [{"name": "public", "task_result_filters": [{"name": "PercentilePrivacy"}]}]
    (tmp_path / "privacy.json").write_text(json.dumps({"scopes": scopes}))
    (one,) = read_filters(tmp_path / "privacy.json").filters
    assert one.name == "PercentilePrivacy"
    assert one.covers


def test_a_flower_app_states_its_mod_by_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(
        "[tool.flwr.app.config]\nnum-server-rounds = 3\nclipping-norm = 1\n"
        "sensitivity = 1e-4\nepsilon = 10\ndelta = 1e-5\n"
    )
    found = read_filters(path)
    (one,) = found.filters
    assert (one.name, dict(one.arguments), found.rounds) == ("LocalDpMod", FLIP, 3)
    assert "assumed from the settings" in one.notes[0]


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
    found = promise_of(SwitchedOn("HEModelEncryptor", "nvflare.app_opt.he.x.HEModelEncryptor", {}))
    assert not found.known
    assert not found.keeps(1e9)
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


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.json", "{", "is not JSON"),
        ("a.json", "[]", "holds no mapping"),
        ("a.json", "{}", "has no filters"),
        ("a.json", '{"task_result_filters": {}}', "expected a list"),
        ("a.json", '{"task_result_filters": [3]}', "expected tasks, filters"),
        ("a.json", '{"task_result_filters": [{"filters": [{}]}]}', "without path and name"),
        ("a.json", '{"task_result_filters": [{"filters": [{"path": 3}]}]}', "expected text"),
        ("a.json", '{"task_result_filters": [{"filters": [{"path": "a", "args": 3}]}]}',
         "expected a mapping"),
        ("a.json", '{"workflows": [{"args": {"num_rounds": 0}}]}', "has 0 rounds"),
        ("a.conf", "{}", "is HOCON"),
        ("a.toml", "=", "is not TOML"),
        ("a.toml", "", "no .tool.flwr.app.config."),
        ("a.toml", "[tool.flwr.app.config]\nlr = 1", "states no filter"),
        ("a.yaml", "mods: [3]", "expected a name"),
        ("a.yaml", "mods: []\nother: 1", "expected mods, strategy and rounds alone"),
        ("a.yaml", "mods: [a", "is not YAML"),
    ],
)  # fmt: skip
def test_a_malformed_file_is_refused_in_one_line(
    name: str, text: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=reason) as error:
        read_filters(tmp_path / name)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(tmp_path / name))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_filters(tmp_path / "none.json")

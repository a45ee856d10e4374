"""The configurations of federations that name filters, in each of their forms."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from leakgauge.core.checks import InputError
from leakgauge.integrations.filter_doubts import filter_doubts
from leakgauge.integrations.filter_files import read_filters
from leakgauge.integrations.nvflare_files import ARRIVING, AT_SERVER, OUTGOING

SVT = "nvflare.app_common.filters.svt_privacy.SVTPrivacy"
FLIP = {"clipping_norm": 1, "sensitivity": 1e-4, "epsilon": 10, "delta": 1e-5}


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


HOCON = """
{
  // a job as the templates write it
  format_version = 2
  NOISE = 0.3
  executors = [{tasks = ["train"], executor {path = "mine.Trainer"}}]
  task_result_filters = [
    {
      tasks = ["train"]
      filters = [{
        path = "nvflare.app_common.filters.svt_privacy.SVTPrivacy"
        args {fraction = 0.2, noise_var = "{NOISE}", epsilon = 1e-1}
      }]
    }
  ]
}
"""


def test_hocon_and_its_variables_are_read(tmp_path: Path) -> None:
    pytest.importorskip("pyhocon", reason='needs pip install "leakgauge[nvflare]"')
    path = tmp_path / "config_fed_client.conf"
    path.write_text(HOCON)
    (one,) = read_filters(path).filters
    assert one.path == SVT
    assert one.arguments == {"fraction": 0.2, "noise_var": 0.3, "epsilon": 0.1}
    assert one.covers


def test_hocon_names_the_package_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyhocon", None)
    path = tmp_path / "config_fed_client.conf"
    path.write_text(HOCON)
    with pytest.raises(InputError, match="pip install pyhocon"):
        read_filters(path)


def test_variables_lead_to_values_of_any_type(client: Any) -> None:
    flow = [{"id": "rounds", "args": {"num_rounds": "{num_rounds}"}}]
    values = {"NOISE": "{COMMON}", "COMMON": 0.5, "num_rounds": 7}
    found = client({"path": SVT, "args": {"noise_var": "{NOISE}"}}, workflows=flow, **values)
    assert found.filters[0].arguments == {"noise_var": 0.5}
    assert found.rounds == 7
    unknown = client({"path": SVT}, workflows=flow)
    assert unknown.rounds is None
    assert unknown.notes == ("the file does not define its rounds, {num_rounds}; give --rounds",)


def test_variables_that_use_each_other_often_are_made_once(client: Any) -> None:
    doubled = {f"v{n}": [f"{{v{n + 1}}}"] * 9 for n in range(60)}  # 9^60 values, if copied
    assert client({"path": SVT}, **doubled, v60=1).filters[0].path == SVT


def test_each_scope_of_a_privacy_policy_is_told_apart(tmp_path: Path) -> None:
    result = [{"path": SVT, "args": {}}]
    scopes = [
        {"name": "open", "task_result_filters": [], "task_data_filters": []},
        {"name": "closed", "task_result_filters": result, "task_data_filters": [{"path": "a.B"}]},
    ]
    path = tmp_path / "privacy.json"
    path.write_text(json.dumps({"scopes": scopes, "default_scope": "open"}))
    found = read_filters(path)
    assert [(one.scope, one.leaving) for one in found.filters] == [
        ("closed", True),
        ("closed", False),
    ]
    assert found.scopes == ("open", "closed")
    assert found.notes == (
        "the scope 'open', in which a job without a scope runs, has no filter for what leaves",
    )


def test_a_configuration_without_filters_is_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "config_fed_server.json"
    path.write_text(json.dumps({"workflows": [{"args": {"num_rounds": 3}}], "components": []}))
    found = read_filters(path)
    assert (found.filters, found.rounds) == ((), 3)


@pytest.mark.parametrize("mods", ["", "mods: [fixedclipping_mod]\n"])
def test_a_strategy_without_its_mod_clips_nothing(mods: str, tmp_path: Path) -> None:
    path = tmp_path / "mods.yaml"
    arguments = "{noise_multiplier: 1, clipping_norm: 1, num_sampled_clients: 5}"
    path.write_text(f"{mods}strategy:\n  DifferentialPrivacyClientSideFixedClipping: {arguments}\n")
    one = read_filters(path).filters[-1]
    assert one.covers == bool(mods)
    assert bool(one.notes) != bool(mods)


def test_the_settings_of_an_app_with_a_central_strategy_name_its_mod(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(
        "[tool.flwr.app.config]\nnoise-multiplier = 0.5\nclipping-norm = 3\n"
        "num-sampled-clients = 8\nnum-shares = 5\n"
    )
    (one,) = read_filters(path).filters
    assert one.name == "DifferentialPrivacyClientSideFixedClipping"
    assert "unless the client's code has fixedclipping_mod" in one.notes[1]


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
        ("a.conf", "a = [", "is not HOCON"),
        ("a.conf", 'include "other.conf"', "includes another file"),
        ("a.conf", "executors = 3", "executors is 3; expected a list"),
        ("a.json", '{"workflows": [], "A": "{B}", "B": "{A}"}', "leads to itself"),
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


def test_what_is_wrong_with_a_file_is_one_line_a_filter(tmp_path: Path) -> None:
    path = tmp_path / "mods.yaml"
    settings = "clipping_norm: 1, sensitivity: {0}, epsilon: 8, delta: 1.0e-5"
    for sensitivity, count in ((0.1, 1), (3, 0)):
        path.write_text(f"mods:\n  - LocalDpMod: {{{settings.format(sensitivity)}}}\n")
        found = filter_doubts(path, parameters=10)
        assert len(found.lines) == count
        assert all("claims epsilon 8, but its noise gives epsilon" in one for one in found.lines)
    path.write_text("mods: [fixedclipping_mod, mine.Other]\nstrategy:\n")
    lines = filter_doubts(path, parameters=10).lines
    assert "`fixedclipping_mod` in mods.yaml gives no differential privacy" in lines[0]
    assert lines[1] == "`Other` in mods.yaml is not known, so nothing is said of it"
    path.write_text("mods: []")
    assert filter_doubts(path, parameters=10).lines == (
        "mods.yaml switches on no filter of what clients send",
    )

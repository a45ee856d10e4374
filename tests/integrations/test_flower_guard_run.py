"""Clients that ``flwr run`` starts refuse an altered model, and train an honest one."""

import shutil
from pathlib import Path

import pytest

from support.flower_app import EXAMPLE
from support.flower_processes import PROCESSES, blocks, commands, flower_home

pytest.importorskip("flwr", reason='needs pip install "leakgauge[flower]"')
pytest.importorskip("ray", reason="needs pip install 'flwr[simulation]'")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(not (PROCESSES / "self" / "environ").exists(), reason="needs /proc"),
]

GUARDED = """from leakgauge.integrations.flower_guard import GuardModel


def own(context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    loader, _ = loaders(context)
    batches = list(loader)
    return tuple(torch.cat([one[name] for one in batches]) for name in ("img", "label"))


app = ClientApp(mods=[GuardModel(Net, own, batch_size=16), KeepUpdates("kept")])
"""
ALTERED = """
def altered(state: dict) -> dict:
    \"\"\"Return a model in which all units of a layer measure one number.\"\"\"
    weight = state["fc1.weight"]
    return {**state, "fc1.weight": weight[:1].expand_as(weight).clone()}
"""


@pytest.mark.parametrize("is_altered", [False, True])
def test_clients_of_flwr_run_refuse_an_altered_model(tmp_path: Path, is_altered: bool) -> None:
    folder = tmp_path / "flower"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("kept*", "__pycache__"))
    client, server = (folder / "digitsapp" / f"{one}_app.py" for one in ("client", "server"))
    text = client.read_text("utf-8")
    plain = 'app = ClientApp(mods=[KeepUpdates("kept")])\n'
    assert plain in text
    client.write_text(text.replace(plain, GUARDED), "utf-8")
    if is_altered:
        text = server.read_text("utf-8").replace(
            "Net().state_dict()", "altered(Net().state_dict())"
        )
        server.write_text(
            text.replace("app = ServerApp()\n", f"app = ServerApp()\n{ALTERED}"), "utf-8"
        )
    ((_, block),) = blocks((EXAMPLE / "README.md").read_text("utf-8"), "Run it with flwr")
    (line,) = (one for one in commands(block) if "flwr run" in one)
    with flower_home(tmp_path) as home:
        said = home.ran(line, folder)
    assert ("model refused" in said and "equal rows" in said) is is_altered
    assert (folder / "kept").exists() is not is_altered

"""Run two clients in NVFlare's simulator: ``python job.py full``, ``diff`` or ``scaffold``."""

import sys
from pathlib import Path

from digits import CLIENTS, PER_CLIENT, Net
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.app_opt.pt.recipes.scaffold import ScaffoldRecipe
from nvflare.recipe.sim_env import SimEnv

from leakgauge.integrations.nvflare import KeepUpdates

HERE, LR = Path(__file__).parent.resolve(), 0.5


def main(kind: str) -> None:
    """Run two rounds, and keep the updates on both sides."""
    settings = {"params_transfer_type": "DIFF"} if kind == "diff" else {}
    recipe = (ScaffoldRecipe if kind == "scaffold" else FedAvgRecipe)(
        name="digits",
        min_clients=CLIENTS,
        num_rounds=2,
        model=Net(),
        train_script=str(HERE / "client.py"),
        train_args=f"--lr {LR}",
        **settings,
    )
    recipe.add_client_file(str(HERE / "digits.py"))
    for add in (recipe.add_client_input_filter, recipe.add_client_output_filter):
        add(KeepUpdates(str(HERE / "kept"), lr=LR, batch_size=PER_CLIENT), tasks=["train"])
    for add in (recipe.add_server_output_filter, recipe.add_server_input_filter):
        filter_ = KeepUpdates(str(HERE / "kept-server"), seen="server", lr=LR)
        add(filter_, tasks=["train"])
    recipe.execute(SimEnv(num_clients=CLIENTS, workspace_root=str(HERE / "workspace")))


if __name__ == "__main__":
    main(sys.argv[1])

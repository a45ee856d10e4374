"""A client of the shape of NVFlare's hello-pt: one step of SGD in each round."""

import argparse

import numpy as np
import nvflare.client as flare
import torch
from digits import Net, records_of
from nvflare.app_common.app_constant import AlgorithmConstants
from torch.nn import functional


def main() -> None:
    """Train in each round on the client's records, and send the weights."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    lr = parser.parse_args().lr
    flare.init()
    x, y = records_of(int(flare.get_site_name().rpartition("-")[2]) - 1)
    while flare.is_running():
        received = flare.receive()
        net = Net()
        net.load_state_dict({k: torch.as_tensor(v) for k, v in received.params.items()})
        optimizer = torch.optim.SGD(net.parameters(), lr=lr)
        functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        meta = {"NUM_STEPS_CURRENT_ROUND": 1, "num_examples": len(y)}
        if AlgorithmConstants.SCAFFOLD_CTRL_GLOBAL in received.meta:
            controls = {k: np.full(v.shape, 7.0, np.float32) for k, v in net.state_dict().items()}
            meta[AlgorithmConstants.SCAFFOLD_CTRL_DIFF] = controls
        params = {k: v.cpu() for k, v in net.state_dict().items()}
        flare.send(flare.FLModel(params=params, metrics={"loss": np.float64(0.5)}, meta=meta))


if __name__ == "__main__":
    main()

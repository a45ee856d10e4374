"""A client of NVFlare: it learns to read digits. ``job.py`` starts it."""

import argparse

import nvflare.client as flare
import torch
from digits import Net, records_of
from torch.nn import functional as F


def main() -> None:
    """Train in each round on the client's records, and send the weights."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    lr = parser.parse_args().lr
    flare.init()
    site = int(flare.get_site_name().rpartition("-")[2]) - 1
    x, y = records_of(site)
    while flare.is_running():
        received = flare.receive()
        model = Net()
        model.load_state_dict({k: torch.as_tensor(v) for k, v in received.params.items()})
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        meta = {"NUM_STEPS_CURRENT_ROUND": 1, "num_examples": len(y)}
        metrics = {"train_loss": loss.item()}
        params = {k: v.cpu() for k, v in model.state_dict().items()}
        flare.send(flare.FLModel(params=params, metrics=metrics, meta=meta))


if __name__ == "__main__":
    main()

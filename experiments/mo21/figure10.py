"""Rebuild images from single layers and sets of layers: Figure 10 of Mo et al. (2021).

LEAKGAUGE_DATA=... python experiments/mo21/figure10.py [IMAGES] [ITERATIONS]
"""

import sys

import numpy as np
import torch

from leakgauge.core.types import Task
from leakgauge.data import open_data
from leakgauge.gradients import params_of
from leakgauge.gradients.walk import walk
from leakgauge.inversion.search.presets import preset
from leakgauge.layers.reconstruction import rebuild_from_layers
from leakgauge.models import build


def main(images: int = 3, iterations: int = 100) -> None:
    """Print the quality of the images rebuilt from each set of layers."""
    source = open_data("cifar100")
    rows = np.random.default_rng(0).permutation(len(source.frame))[:images]
    x = torch.from_numpy(source.pixels[rows]).float() / 255
    y = torch.from_numpy(source.frame["y_fine"].to_numpy()[rows].astype(np.int64))
    rng = torch.Generator().manual_seed(0)
    model = build("lenet7", channels=3, classes=100, side=32, init="wide-uniform", generator=rng)
    task = Task(model)
    names = [layer.name for layer in walk(task, x)]
    sets = [(name,) for name in names]
    sets += [(names[0], names[-1]), tuple(names[:4]), tuple(names)]
    settings = preset("idlg", iterations=iterations)
    found = rebuild_from_layers(task, params_of(model), x, y, sets, settings=settings, seed=0)
    for one in found:
        places = ", ".join(str(names.index(name) + 1) for name in one.layers)
        psnr, ssim = float(one.psnr.mean()), float(one.ssim.mean())
        print(f"layers {places:24} PSNR {psnr:5.1f} dB  SSIM {ssim:.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""Public CIFAR-10 classifiers as tasks, in place of the paper's well-generalised models.

Rows 0 to 49999 are the training images of CIFAR-10, rows 50000 to 59999 the test images. The
weights are those of akamaster/pytorch_resnet_cifar10.

    cd experiments/nasr19
    seq 0 49999 > members.txt; seq 50000 59999 > others.txt
    leakgauge membership resnet20.safetensors --members members.txt --non-members others.txt \
        --task public_models:resnet20
"""

import numpy as np
import torch

from leakgauge import Dataset, Task, models
from leakgauge.data import open_data

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of their normalisation, by channel."""


def images() -> Dataset:
    """Return training images, then test images, normalised for the classifiers."""
    parts = [open_data(name) for name in ("cifar10-full-train", "cifar10-full-test")]
    x = torch.from_numpy(np.concatenate([one.pixels for one in parts])).float() / 255
    mean, deviation = (torch.tensor(row).view(3, 1, 1) for row in (MEAN, DEVIATION))
    y = np.concatenate([one.frame["y"].to_numpy() for one in parts]).astype(np.int64)
    return Dataset((x - mean) / deviation, torch.from_numpy(y))


def resnet20() -> tuple[Task, Dataset]:
    """Return ResNet20, with 91.7 % accuracy on all test images, and the images."""
    return Task(models.resnet20(3, 10, generator=torch.Generator())), images()


def resnet56() -> tuple[Task, Dataset]:
    """Return ResNet56, with 93.4 % accuracy on all test images, and the images."""
    return Task(models.resnet56(3, 10, generator=torch.Generator())), images()

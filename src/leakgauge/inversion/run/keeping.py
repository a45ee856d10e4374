"""Keeps what was rebuilt from the update of a real client."""

from pathlib import Path

from safetensors.torch import save_file

from leakgauge.inversion.run.kept import MOST_RECORDS
from leakgauge.inversion.run.received import Received
from leakgauge.results.measurements import PICTURES_FILE

REBUILT_FILE = "rebuilt.safetensors"


def keep_received(folder: Path, received: Received) -> None:
    """Write pictures to ``pictures.safetensors`` under the name ``"0"``.

    Other records go to ``rebuilt.safetensors`` as ``x [B, ...]`` and ``labels [B]``; inputs to a
    layer, recovered in place of records, go there as ``layer_inputs [k, D]`` and ``labels [k]``.
    """
    pictures = received.pictures
    if received.layer is not None:
        (found,) = received.layer.x
        parts = {"layer_inputs": found, "labels": received.labels[: len(found)]}
        file = REBUILT_FILE
    elif pictures is not None:
        file, parts = PICTURES_FILE, {"0": pictures[:MOST_RECORDS]}
    else:
        file, parts = REBUILT_FILE, {"x": received.x, "labels": received.labels}
    save_file({name: one.cpu().contiguous() for name, one in parts.items()}, folder / file)

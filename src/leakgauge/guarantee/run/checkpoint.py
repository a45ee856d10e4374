"""Keeps the record of an audit, so that a run that was killed need not search for it again."""

import torch

from leakgauge.core.types import Dataset
from leakgauge.guarantee.pair import Pair, attribute_of
from leakgauge.guarantee.spec import GuaranteeSpec
from leakgauge.runs.work import WorkFolder

NAME = "record"


def keep_pair(folder: WorkFolder, pair: Pair) -> None:
    """Keep a pair in the folder."""
    arrays = {"x": pair.x.cpu().numpy(), "y": pair.y.cpu().numpy()}
    about = {"values": list(pair.attribute.values), "origin": pair.origin}
    folder.keep_arrays(NAME, arrays, about)


def kept_pair(folder: WorkFolder, data: Dataset, spec: GuaranteeSpec) -> Pair | None:
    """Return the pair that the folder keeps, or None.

    Args:
        folder: of this audit.
        data: the encoded table.
        spec: resolved.
    """
    kept = folder.arrays(NAME)
    if kept is None:
        return None
    arrays, about = kept
    x, y = (torch.from_numpy(arrays[name]).to(data.x.device) for name in ("x", "y"))
    attribute = attribute_of(data, str(spec.attribute), values=tuple(about["values"]))
    return Pair(x, y, attribute, str(about["origin"]))

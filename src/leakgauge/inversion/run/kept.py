"""What was rebuilt, kept beside the records so that a report can show it. It is private."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file
from torch import Tensor

from leakgauge.core.types import Schema
from leakgauge.data.decode import column_hits, decode
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.run.scoring import Rebuilt
from leakgauge.results.measurements import PICTURES_FILE, ROWS_FILE, write_text

SHOWN = 64
"""Records that are kept for the report, at most."""

PIXELS = 500_000
"""Of all images of one attempt that are kept."""


def keep_evidence(folder: Path, scene: Scenario, rebuilt: Sequence[Rebuilt]) -> None:
    """Write the truth and what each attempt made of it.

    Images go to ``pictures.safetensors`` (uint8 ``[n, c, h, w]``; ``"truth"``, ``"0"``, ``"1"``,
    ... in the order of the attempts). Rows of tables go to ``rows.json`` under the same names: of
    each record its columns' values as text, of an attempt with whether they are right.
    """
    count = _shown(rebuilt[0].truth) if scene.schema is None else SHOWN
    truth, found = rebuilt[0].truth[:count], [one.found[:count] for one in rebuilt]
    if scene.schema is None:
        parts = {"truth": truth, **{str(at): x for at, x in enumerate(found)}}
        save_file({name: _bytes(x) for name, x in parts.items()}, folder / PICTURES_FILE)
        return
    rows: dict[str, Any] = {"truth": _texts(truth, scene.schema)}
    for at, x in enumerate(found):
        hits = column_hits(x, truth, scene.schema)
        rows[str(at)] = [
            {name: (text, bool(hits[name][row])) for name, text in texts.items()}
            for row, texts in enumerate(_texts(x, scene.schema))
        ]
    write_text(folder / ROWS_FILE, json.dumps(rows))


def _shown(images: Tensor) -> int:
    """How many images ``[n, c, h, w]`` a page of a few MB can hold."""
    return min(SHOWN, max(1, PIXELS // images[0, 0].numel()))


def _texts(x: Tensor, schema: Schema) -> list[dict[str, str]]:
    """The columns of encoded records ``[n, D]`` as a reader has them."""
    rows = decode(x, schema).to_dict("records")
    return [{str(name): _text(value) for name, value in row.items()} for row in rows]


def _text(value: Any) -> str:
    if pd.isna(value):
        return "(missing)"
    if not isinstance(value, float):
        return str(value)
    # Float32 has about seven digits; more would be the encoding's rounding.
    return np.format_float_positional(value, precision=6, fractional=False, trim="-")


def _bytes(x: Tensor) -> Tensor:
    return (255 * x).round().clamp(0, 255).to(torch.uint8).cpu().contiguous()

"""The network as a strip of layers, with a measure as bars."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from leakgauge.layers.report.rows import LayerRow
from leakgauge.report.charts import ACCENT, INK, MUTED, chart


def strip(rows: Sequence[LayerRow], metric: str, *, name: str, chance: float) -> Markup | None:
    """Return a bar a layer with its interval, in the order in which layers run.

    Layers are numbered from 1: a chart has no text of the user.

    Args:
        rows: the layers.
        metric: that the bars show.
        name: a word that no other chart of the page has.
        chance: the value where nothing leaks, from which bars start.
    """
    known = [(number, row.estimate(metric)) for number, row in enumerate(rows, start=1)]
    drawn = [(number, one) for number, one in known if one is not None]
    if not drawn:
        return None
    places = np.array([number for number, _ in drawn])
    values = np.array([one.value for _, one in drawn])
    ends = np.array([[one.value - one.low, one.high - one.value] for _, one in drawn]).T
    colours = [ACCENT if value == values.max() else MUTED for value in values]
    with chart(name) as (axes, svg):
        axes.bar(places, values - chance, bottom=chance, color=colours, width=0.7, alpha=0.75)
        axes.errorbar(places, values, yerr=ends.clip(min=0), fmt="none", ecolor=INK, capsize=3)
        axes.axhline(chance, color=MUTED, linewidth=1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
        axes.set_xlim(0.4, len(rows) + 0.6)
        axes.set_xlabel("layer, from the input to the output")
    return svg[0]

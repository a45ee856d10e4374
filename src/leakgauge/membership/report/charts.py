"""Charts of membership inference: the attack's log odds, and gradient norms over epochs."""

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import FuncFormatter, NullLocator

from leakgauge.membership.metrics import MEMBERS_NORM, OTHERS_NORM
from leakgauge.report.charts import ACCENT, MUTED, chart
from leakgauge.results.measurements import Histogram, Measurement

DASHED = (0, (4, 3))


def odds(histogram: Histogram, *, name: str) -> Markup:
    """Return the histogram of log odds: ``null`` counts others, ``alternative`` members."""
    edges = np.array(histogram.edges)
    with chart(name) as (axes, svg):
        for counts, colour, dash in (
            (histogram.null, MUTED, DASHED),
            (histogram.alternative, ACCENT, "-"),
        ):
            shares = np.array(counts) / max(1, sum(counts))
            axes.stairs(shares, edges, color=colour, fill=True, alpha=0.25)
            axes.stairs(shares, edges, color=colour, linewidth=1.6, linestyle=dash)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.0f} %"))
        axes.set_xlabel("log odds that the attack gives")
    return svg[0]


def norms_by_epoch(
    norms: Mapping[str, Sequence[Measurement]], *, name: str, counted: str
) -> Markup | None:
    """Return the mean gradient norm of members and of others by epoch (the paper's Figure 3).

    Args:
        norms: measurements by metric, in order of the epochs.
        name: name that is unique on the page.
        counted: epoch or round.
    """
    lines = {MEMBERS_NORM: ACCENT, OTHERS_NORM: MUTED}
    if any(len(norms.get(metric, ())) < 2 for metric in lines):
        return None
    with chart(name) as (axes, svg):
        for metric, colour in lines.items():
            epochs = [int(one.round) for one in norms[metric]]
            estimates = [one.estimate for one in norms[metric]]
            dash = DASHED if metric == OTHERS_NORM else "-"
            values = [one.value for one in estimates]
            axes.plot(epochs, values, color=colour, marker="o", linestyle=dash)
            low, high = ([getattr(one, end) for one in estimates] for end in ("low", "high"))
            axes.fill_between(epochs, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.set_xscale("log")
        axes.set_xticks(epochs, [str(epoch) for epoch in epochs])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(bottom=0)
        axes.set_xlabel(f"{counted} (log scale)")
    return svg[0]

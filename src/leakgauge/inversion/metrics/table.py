"""The metrics of the question whether records can be rebuilt."""

import math
from functools import partial

from leakgauge.results.measurements import SECONDS
from leakgauge.results.metrics import Metric

PSNR = "psnr"
RECOGNISABLE = "recognisable"
SSIM = "ssim"
LPIPS = "lpips"
COLUMNS = "columns"
RECORDS = "records"
CELLS = "cells"
MOST_SURE = "most_sure"
LEAST_SURE = "least_sure"
CERTIFIED = "certified"
LAYER_INPUTS = "layer_inputs"
LAYER_CERTIFIED = "layer_certified"
LABEL_ACCURACY = "label_accuracy"
LABEL_RESIDUAL = "label_residual"
TOKEN_ACCURACY = "token_accuracy"
SEQUENCES = "sequences"
GAIN = "gain"
LOSS = "loss"
MATCHED = "matched"
FELL_SHORT = "fell_short"

CLEAR_DB, CLOSE_DB = 20.0, 27.0
"""Smallest PSNR of images that can be recognised, and of images that look like the truth. This is
our reading of many pictures of 32 x 32 pixels; look at the pictures."""

PARTS_DB = 2.0
"""Smallest PSNR above that of the mean colour if parts of the images are rebuilt."""

WITHOUT = {"no_pooling": (False, True), "no_labels": (True, False), "plain": (False, False)}
"""Variants of the paper's matching by name: (images are pooled, labels filter pairs)."""

UNFINISHED = ("search", "fell short")
"""The detail of scores of a search that fell short for an update, and its value."""

NOT_KNOWN = ("defense", "not understood")
"""The detail of scores of an attack that does not know the defense, where none here does."""

_score = partial(
    Metric,
    blind=(UNFINISHED,),
    blind_why="the search fell short of the true records, was stopped, or does not know the "
    "defense, so it shows no limit; "
    "search longer (--iterations, --restarts)",
)

METRICS = {
    PSNR: _score(title="PSNR", unit="dB", low=-math.inf, high=math.inf, headline=True),
    RECOGNISABLE: _score(title="Images recognisable"),
    SSIM: _score(title="SSIM", low=-1.0),
    LPIPS: Metric(title="LPIPS", high=math.inf, higher_is_worse=False),
    GAIN: _score(title="PSNR above the best guess", unit="dB", low=-math.inf, high=math.inf),
    COLUMNS: _score(title="Columns right", headline=True),
    RECORDS: _score(title="Records exact"),
    CELLS: _score(title="Cells right, TabLeak's rule"),
    MOST_SURE: Metric(title="Right, most confident quarter", tabled=False),
    LEAST_SURE: Metric(title="Right, least confident quarter", tabled=False),
    CERTIFIED: Metric(title="Updates certified"),
    LAYER_INPUTS: Metric(title="Layer inputs exact"),
    LAYER_CERTIFIED: Metric(title="Layer inputs certified"),
    TOKEN_ACCURACY: _score(title="Tokens right", headline=True),
    SEQUENCES: _score(title="Sequences right"),
    LABEL_ACCURACY: Metric(title="Labels right"),
    MATCHED: Metric(title="Update matched", tabled=False),
    FELL_SHORT: Metric(title="Searches that fell short", higher_is_worse=False, tabled=False),
    LABEL_RESIDUAL: Metric(
        title="Labels' distance from whole counts",
        unit="records",
        high=math.inf,
        higher_is_worse=False,
        tabled=False,
    ),
    "matching_greedy": Metric(title="Matched, greedy"),
    "matching_greedy_no_pooling": Metric(title="Matched, greedy, no pooling"),
    "matching_greedy_no_labels": Metric(title="Matched, greedy, no labels"),
    "matching_greedy_plain": Metric(title="Matched, greedy, neither"),
    "matching_optimal": Metric(title="Matched, optimal"),
    "matching_gradients": Metric(title="Matched, by gradients"),
    SECONDS: Metric(title="Time", unit="s", high=math.inf, higher_is_worse=False),
    LOSS: Metric(title="Loss", high=math.inf, higher_is_worse=False, tabled=False),
}
"""Metrics by name. The figure of a single column of a table is named ``"columns: NAME"``. The score
of a guess depends on the data. The gain is the mean over images of the difference to the best guess
that needs no gradient. An image counts as recognisable from ``CLEAR_DB`` of PSNR on, if that is at
least ``PARTS_DB`` above the mean colour's. A record is exact if no coordinate of its encoding
differs by more than 0.001. A cell is right by TabLeak's rule if its category is the same, or its
number within 0.319 standard deviations, in the order of rows with most right cells. How often the
most and the least confident quarter of an update's cells are right is by this rule too, of
``"categories"`` and ``"numbers"`` apart. An update is certified if the gradient of the rebuilt
records equals it to rounding. The inputs to a layer are exact if none differs by more than 0.001 of
the largest, and certified if their gradient of this layer and of all behind it equals the received
one to rounding. How far an update is matched is the agreement of the update of the rebuilt records
with the one that was sent, by direction and size. A search fell short where the true records lie
nearer to the update than the rebuilt ones, by the search's own objective. The loss is what the
attacker minimizes, not a distance to the truth. The time is that of the search for the records of
one update; over several epochs, that of the joint search alone, for as many records."""

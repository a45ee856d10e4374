"""The words and default numbers of the question whether records can be rebuilt."""

NAME = "reconstruction"
"""The question's name."""

EXACT = "exact"
"""The method that divides gradients of a first linear layer, for tables."""

STRONGEST = "leakgauge"
"""The strongest search."""

METHODS = ("dlg", "dlg-adam", "idlg", "inverting-gradients", "agic", STRONGEST, EXACT)
MLP = "mlp"
"""The network for tables."""

SCHEMES = ("pytorch", "he", "he-fan-out", "wide-uniform")
GREEDY, OPTIMAL, GRADIENTS = "greedy", "optimal", "gradients"
KNOWN, INFERRED, GRADINVERSION, COUNTS = "known", "inferred", "gradinversion", "counts"
MATCHINGS = (GREEDY, OPTIMAL, GRADIENTS, KNOWN)
LABELS = (KNOWN, INFERRED, GRADINVERSION, COUNTS)

PER_SAMPLE, TOGETHER = JOINTS = ("per-sample", "all")
"""How records are rebuilt from several epochs: by the paper's rule, or by ours."""

AGIC = "agic"
"""The method that follows Xu et al., also over several epochs."""

LATER_EPOCHS = 0.1
"""AGIC's weight gamma of the updates of each epoch after the first, which weighs 1."""

SERVER_LR = 0.01
"""Learning rate of the server's step after each gradient, over several epochs. AGIC's paper names
none; this one is ours."""

DISTINCT, RANDOM, FIRST = DRAWS = ("distinct", "random", "first")
"""How the attacked records are drawn from the data."""

IMAGES = 8
"""Records that are attacked unless a user says otherwise."""

ITERATIONS = 500
"""Iterations of the search unless a user says otherwise; the papers' numbers take hours."""

ROUGH_ITERATIONS = 2000
"""Iterations for rough images, which are matched between epochs: the paper's number (AGIC, V-D)."""

HIDDEN = (100,)
"""Widths of the hidden layers of the network for tables unless a user says otherwise."""

LARGE_NET, SMALL_SIDE = "resnet50", 64
"""A network, or images beyond a side in pixels, that AGIC's settings for ImageNet are taken for."""

LARGEST_SIDE = 1024
"""Largest height and width of images in pixels: all images of the data are held at this size."""

OF_AN_UPDATE = frozenset(
    {
        *("ask", "data", "update", "task", "method", "images", "iterations", "restarts"),
        *("labels", "simulate", "redact", "device", "seed", "files"),
    }
)
"""The settings that apply to the update of a real client."""


def default_image_count(records_per_update: int) -> int:
    """Return how many records are attacked by default: 8, or the next number of whole updates.

    >>> default_image_count(1), default_image_count(3), default_image_count(16)
    (8, 9, 16)
    """
    return records_per_update * -(-IMAGES // records_per_update)

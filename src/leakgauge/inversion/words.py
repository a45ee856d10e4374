"""The words and default numbers of the question whether records can be rebuilt."""

NAME = "reconstruction"
"""The question's name."""

MLP = "mlp"
"""The network for tables."""

GREEDY, OPTIMAL, GRADIENTS = "greedy", "optimal", "gradients"
KNOWN, INFERRED, GRADINVERSION, COUNTS = "known", "inferred", "gradinversion", "counts"
MATCHINGS = (GREEDY, OPTIMAL, GRADIENTS, KNOWN)
LABELS = (KNOWN, INFERRED, GRADINVERSION, COUNTS)

PER_SAMPLE, TOGETHER = JOINTS = ("per-sample", "all")
"""Rules to rebuild records from several epochs: the paper's, and ours."""

LATER_EPOCHS = 0.1
"""AGIC's weight gamma of the updates of each epoch after the first, which weighs 1."""

SERVER_LR = 0.01
"""Learning rate of the server's step after each gradient, over several epochs. AGIC's paper names
none; this one is ours."""

NOT_UNDERSTOOD = "Not understood"
NOT_CERTIFIED = "Search not finished"
SHORT, STOPPED = "Search fell short", "Search stopped"
UNKNOWN_DEFENSE = "Defense not understood"
LAYER_EXACT, LAYER_SURE = "Layer inputs exact", "Layer inputs certified"
BY_SERVER = ", server "
"""Words between a method and the active server whose model it attacks, in an attempt's name."""

AGAINST_SERVERS = (
    "A client can check a model before it trains it, and refuse this server's: leakgauge.guard, "
    "and GuardModel for Flower and NVFlare."
)
REMEDIES = {
    NOT_UNDERSTOOD: "Name how the clients trained: `--local-optimizer`, `--local-steps`, "
    "`--batch-size`. Or search longer: `--iterations`, `--restarts`.",
    NOT_CERTIFIED: "Search longer: `--method exact-batch:rounds=500`. Or audit smaller batches: "
    "`--batch-size`.",
    SHORT: "Search longer: `--iterations`, `--restarts`.",
    STOPPED: "Audit smaller batches: `--batch-size`.",
    UNKNOWN_DEFENSE: "Let the attack compute the defense: define `adapt` or `centre` of its "
    "transform. Or audit single records: `--batch-size 1`.",
}
"""What helps, by the verdict."""

ASSUMED = "assumed"
"""The detail of a measurement that says what the attacker assumed of a client's training."""

LAYER = "layer"
"""The detail of a measurement that names the layer whose inputs were recovered."""

MATCHED = 0.95
"""Smallest match of the update of rebuilt records and the one that was sent (``agreement``), from
which a failed search says something of the records: below, it did not reproduce the update. True
records reach 1 under plain SGD, within the bounds of one step of Adam and under simulated SGD, and
about 0.97 to 0.99 under softly simulated Adam. Of records that were found under a wrong momentum
the direction agrees to 0.98 or more, and this figure, which counts the size too, is 0.87 to 0.91
(clients with 4 images of CIFAR-10, a small network)."""

ALIGNED = "match of the direction alone"
"""The detail of a match of updates on the match of their directions, from 0 to 1."""

ONE_STEP, EQUAL_GRADIENTS, WITHOUT = DOUBTS = (
    "one local step",
    "equal gradients at all",
    "steps without",
)
"""Beginnings of assumptions that a match does not confirm: records under equal gradients reproduce
an update to 0.985 and lie 7 dB below those of a simulation (four steps, momentum 0.9)."""

RATE, OPTIMIZER = UNKNOWNS = ("rate", "optimizer")
"""What an attacker may not know of a client's training."""

ASSUMED_LR = 0.001
"""The rate that an attacker assumes who does not know it: torch's default for SGD and Adam."""

GRANTED, FROM_BUFFERS, PROXY = STATISTICS = ("known", "inferred", "proxy")
"""How an attacker knows the statistics of BatchNorm: granted, read off the running statistics that
were sent, or those of public records."""

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

OF_AN_UPDATE = frozenset(
    {
        *("ask", "data", "update", "task", "method", "images", "iterations", "restarts"),
        *("labels", "simulate", "redact", "device", "seed", "files"),
        *("unknown", "assumed_lr", "statistics", "local_optimizer"),
    }
)
"""The settings that apply to the update of a real client."""

OF_TEXT = frozenset(
    {
        *("ask", "task", "method", "images", "draw", "first", "batch_size", "defense", "redact"),
        *("labels", "label", "device", "seed", "files"),
    }
)
"""Settings that apply to the text of a user's own model."""

GUESSES = ("mean", "class mean", "public record", "nearest public record")
MEAN, CLASS_MEAN, PUBLIC, NEAREST = GUESSES
"""Guesses that use no gradient: the mean of public records (the mean colour of images), that of a
label's, the public record nearest to that mean, and the one nearest to the truth, which no attacker
can make."""

DRAWN = "random rows"
"""Guess of rows of a table: each column is drawn from the public records by itself."""

FREQUENT = "most frequent tokens"
"""Guess of a sequence: the most frequent public token at each position."""

OF_CLIENTS = (
    *("local_optimizer", "local_epochs", "local_rates", "train_mode", "clients", "unknown"),
    "statistics",
)
"""Settings of clients that do more than plain SGD, or are known less well."""


def default_image_count(records_per_update: int) -> int:
    """Return how many records are attacked by default: 8, or the next number of whole updates.

    >>> default_image_count(1), default_image_count(3), default_image_count(16)
    (8, 9, 16)
    """
    return records_per_update * -(-IMAGES // records_per_update)

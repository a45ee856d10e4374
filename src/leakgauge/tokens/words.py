"""Words of the timeline's settings; imports no torch."""

QUESTION = "timeline"

INFONCE, NWJ, SMILE, MINE = "infonce", "nwj", "smile", "mine"
ESTIMATORS = (INFONCE, NWJ, SMILE, MINE)
"""Estimators of mutual information; ``mine`` is the paper's."""

AUTOENCODER, TRANSFORMER = "autoencoder", "transformer"
TOKENS = (AUTOENCODER, TRANSFORMER)
"""Encoders of gradients as privacy tokens."""

SEPARABLE, CONCAT = "separable", "concat"
CRITICS = (SEPARABLE, CONCAT)
"""Kinds of critics; ``concat`` is the paper's."""

STANDARDISED, RAW = "standardised", "raw"
SCALES = (STANDARDISED, RAW)
"""Scales of the coordinates that critics see."""

IN_EVALUATION = "gradients in evaluation mode of a model that trains in training mode"
"""The detail of a figure whose gradients are not those of the training."""

PLANTED = (0.1, 0.2, 0.5, 1.0)
"""Planted leaks in nats, if a training shows none; by bisection three of them are tried at most."""

SMALLEST_SEEN = "smallest planted leak that is seen, nats"
"""The detail of the largest figure where it shows no leak."""

CLEAR_NATS = 0.2
"""Leak in nats that a run without a leak must be able to see."""

ORACLE = "oracle"
"""The detail of the same figure: what an adversary finds that knows model and candidate batches."""

ORACLE_SAW = "what an oracle recognises"
ORACLE_SEES, ORACLE_BLIND = (ORACLE_SAW, "batches"), (ORACLE_SAW, "nothing")
ORACLE_UNKNOWN = (ORACLE_SAW, "not known")
"""The detail of the same figure on whether the oracle tells batches apart, and its values."""

CHECKPOINT, STREAM = "checkpoint", "stream"
STREAM_TO_CHECKPOINT = "stream-to-checkpoint"
PAIRS = (CHECKPOINT, STREAM)
"""Sources of pairs: batches at one checkpoint, or those of the training itself."""

ALL_PAIRS = (*PAIRS, STREAM_TO_CHECKPOINT)
"""The same, and those of the whole training to learn from with checkpoint batches to report."""

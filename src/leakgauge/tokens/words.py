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

CHECKPOINT, STREAM = "checkpoint", "stream"
STREAM_TO_CHECKPOINT = "stream-to-checkpoint"
PAIRS = (CHECKPOINT, STREAM)
"""Sources of pairs: batches at one checkpoint, or those of the training itself."""

ALL_PAIRS = (*PAIRS, STREAM_TO_CHECKPOINT)
"""The same, and those of the whole training to learn from with checkpoint batches to report."""

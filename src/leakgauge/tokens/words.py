"""Words that settings of the timeline take; imports no torch."""

QUESTION = "timeline"

INFONCE, NWJ, SMILE, MINE = "infonce", "nwj", "smile", "mine"
ESTIMATORS = (INFONCE, NWJ, SMILE, MINE)
"""Estimators of mutual information; ``mine`` is the paper's."""

AUTOENCODER, TRANSFORMER = "autoencoder", "transformer"
TOKENS = (AUTOENCODER, TRANSFORMER)
"""What turns gradients into privacy tokens."""

SEPARABLE, CONCAT = "separable", "concat"
CRITICS = (SEPARABLE, CONCAT)
"""How a critic compares features and tokens; ``concat`` is the paper's."""

STANDARDISED, RAW = "standardised", "raw"
SCALES = (STANDARDISED, RAW)
"""What critics see of each coordinate."""

CHECKPOINT, STREAM = "checkpoint", "stream"
PAIRS = (CHECKPOINT, STREAM)
"""Where pairs come from: batches at one checkpoint, or those of the training itself."""

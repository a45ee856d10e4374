"""Gradients of many batches at once, of single records, and weight changes of local steps."""

from leakgauge.gradients.gradients import (
    MAX_BYTES,
    batch_gradients,
    check_vectorisable,
    iter_batch_gradients,
    local_updates,
    params_of,
    per_example_gradients,
    pooled_batch_gradients,
)

__all__ = [
    "MAX_BYTES",
    "batch_gradients",
    "check_vectorisable",
    "iter_batch_gradients",
    "local_updates",
    "params_of",
    "per_example_gradients",
    "pooled_batch_gradients",
]

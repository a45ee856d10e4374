"""Names of what a monitor writes; imports no torch."""

STEP, CHEAP, ALERT = "step", "cheap", "alert"

BOUND, IN_SAMPLE, PLACEBO = "information_nats", "in_sample", "placebo"
GAP, GAP_IN_SAMPLE, GAP_PLACEBO = "critic_gap", "gap_in_sample", "placebo_gap"
LIMIT, LIMITED = "limit_nats", "limited"
ESTIMATOR, TOKEN = "estimator", "token"

MEAN, SUM = "mean", "sum"
REDUCTIONS = (MEAN, SUM)
"""How a loss joins the records of a batch."""
LINEAR, LINEAR_PLACEBO = "linear_gaussian", "linear_gaussian_placebo"

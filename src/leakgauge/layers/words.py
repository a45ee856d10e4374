"""Words that settings of layers take; imports no torch."""

QUESTION = "layers"

HIDE = "hide"
"""Advice: what layers are kept from the attacker, in an enclave or encrypted."""

PLATT, VOTES = "platt", "softmax-votes"
CALIBRATIONS = (PLATT, VOTES)

ALL = "all"
"""What an attack sees that sees all layers."""

FAMILY = ("forest", "logistic", "network")
"""The predictive family: the attacks among which held-out data choose."""

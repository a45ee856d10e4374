"""Exact recovery of whole batches from the gradient of a linear layer before a ReLU."""

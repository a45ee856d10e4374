"""Gradients of many records as products of two factors, by layer, computed only where needed."""

"""Gradients of many records as products of two factors, by layer, never made where not needed."""

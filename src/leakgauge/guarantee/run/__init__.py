"""One audit of a guarantee, from a table to measurements."""

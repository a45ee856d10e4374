"""Turns measurements into one self-contained HTML page; it computes no figures of an audit."""

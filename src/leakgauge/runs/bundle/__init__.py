"""Reads the folders of many runs and writes them as one static page."""

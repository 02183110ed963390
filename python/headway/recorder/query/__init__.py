"""Queries to the recorder: ranges, selections, comparisons."""

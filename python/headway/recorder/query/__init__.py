"""Questions to the recorder: ranges, selections, comparisons."""

"""The metrics that the recorder exports: their definitions and their running sums."""

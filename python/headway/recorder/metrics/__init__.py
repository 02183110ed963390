"""The metrics that leave the recorder: their definitions and their running sums."""

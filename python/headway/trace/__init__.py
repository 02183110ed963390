"""Timelines of holds, waits and drop requests of a GIL, measured or simulated."""

"""Contention profiles: which code holds a GIL while other threads wait, and which code waits."""

"""Experiments on the GIL and what schedules it: measured, with what was published beside them.

Programs to measure run in processes of their own (`processes`, `programs`); who measures never runs
them itself.
"""

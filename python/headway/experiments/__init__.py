"""Experiments on the GIL and its schedulers: measured, and compared with published values.

Measured programs run in processes of their own (`processes`, `programs`). The measuring process
never runs them itself.
"""

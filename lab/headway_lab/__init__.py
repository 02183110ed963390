"""Headway's laboratory: experiments on the GIL, measured and simulated, beside published values.

Measured programs run in processes of their own (`measured/programs`). The measuring process never
runs them itself.
"""

"""The supervisor of `headway serve`: it starts, watches and replaces the worker processes."""

"""The recorder's SQLite store: written, rolled up, pruned and read."""

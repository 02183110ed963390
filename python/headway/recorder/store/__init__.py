"""The recorder's SQLite store: writing, rollup, retention and reading."""

"""The GIL report: its schema, its figures and its text for a terminal."""

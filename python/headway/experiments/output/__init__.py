"""Results of experiments as text, charts and one HTML page."""

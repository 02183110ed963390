"""Results of measurements: their statistics, and tables, charts and an HTML page of them."""

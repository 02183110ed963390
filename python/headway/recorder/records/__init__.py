"""A record of telemetry: its events, histograms, summary and configuration."""

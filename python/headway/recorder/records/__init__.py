"""Records of telemetry: their events, histograms, summary and configuration."""

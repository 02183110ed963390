"""Telemetry: records, explains and shows the reports of processes."""

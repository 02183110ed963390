"""Telemetry: what processes report about themselves, recorded, explained and shown."""

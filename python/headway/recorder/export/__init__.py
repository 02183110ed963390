"""The recorder's metrics in formats of other systems: Prometheus, OpenMetrics and OTLP."""

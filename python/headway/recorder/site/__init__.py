"""The recorder's site: the dashboard, the JSON API and /metrics."""

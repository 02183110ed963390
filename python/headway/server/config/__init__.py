"""The configuration of `headway serve`: flags, TOML and Apache files become resolved settings."""

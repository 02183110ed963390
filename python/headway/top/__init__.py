"""`headway top`: shows the data of `headway telemetry` in a terminal."""

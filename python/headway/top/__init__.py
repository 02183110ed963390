"""`headway top`: what `headway telemetry` knows, in a terminal."""

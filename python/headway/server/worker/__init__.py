"""The part of `headway serve` that runs beside the application, in a worker process."""

"""Programs that other parts start and end: their processes, signals and progress."""

"""The verbs of the `headway` command, a module each."""

"""The WSGI server: `headway serve`."""

"""Apache configuration files, read for what they say to a WSGI server."""

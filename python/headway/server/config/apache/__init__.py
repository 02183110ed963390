"""Reads Apache configuration files for the settings that matter to a WSGI server."""

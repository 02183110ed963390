"""The experiment `wsgi`: a page of 3 ms of Python, served by several servers and shapes."""

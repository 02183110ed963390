"""The pages and drawings of the site that the code is the source of; `docs/conf.py` writes them."""

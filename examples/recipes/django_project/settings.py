"""The settings of a Django project with one application and a database in memory."""

from __future__ import annotations

INSTALLED_APPS = ["orders"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True

"""Django's settings of the bookshop.

BOOKSHOP_DATABASE is the folder of PostgreSQL's socket, BOOKSHOP_PASSWORD the password of its user
bookshop, and BOOKSHOP_DELIVERY the port of the delivery service on 127.0.0.1; `services.py` starts
both and sets the three.
"""

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent

SECRET_KEY = "not a secret: this shop sells nothing"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "bookshop.urls"
WSGI_APPLICATION = "bookshop.wsgi.application"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.postgres",
    "django.contrib.sessions",
    "bookshop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [HERE / "templates"],
        "OPTIONS": {"context_processors": ["django.template.context_processors.csrf"]},
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "bookshop",
        "USER": "bookshop",
        "PASSWORD": os.environ.get("BOOKSHOP_PASSWORD", ""),
        "HOST": os.environ.get("BOOKSHOP_DATABASE", ""),
        # A thread keeps its connection.
        "CONN_MAX_AGE": None,
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "/static/"
STATIC_ROOT = HERE / "static"
USE_TZ = True
DELIVERY_PORT = int(os.environ.get("BOOKSHOP_DELIVERY", "0"))

"""The bookshop as a WSGI application: `headway serve bookshop.wsgi:application`."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bookshop.settings")
application = get_wsgi_application()

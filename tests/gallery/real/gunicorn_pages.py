"""Django under gunicorn, whose master only waits: a worker with eight threads, and equal pages."""

import os
import signal
import sys
import threading

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.template import Context, Engine
from django.urls import path
from gunicorn.app.base import BaseApplication

from load import clients

PAGE = Engine().from_string(
    "{% for row in rows %}<p>{{ row }} {{ forloop.counter }}</p>{% endfor %}"
)


def page(request):
    return HttpResponse(PAGE.render(Context({"rows": range(1500)})))


settings.configure(ROOT_URLCONF=sys.modules[__name__], ALLOWED_HOSTS=["*"], SECRET_KEY="x")
urlpatterns = [path("", page)]
django.setup()
application = get_wsgi_application()


class Site(BaseApplication):
    def load_config(self):
        for name, value in {
            "bind": "127.0.0.1:8794",
            "workers": 1,
            "threads": 8,
            "worker_class": "gthread",
            "loglevel": "critical",
        }.items():
            self.cfg.set(name, value)

    def load(self):
        return application


load = clients(8794, 5, "/:8")


def stop():
    load.wait()
    os.kill(os.getpid(), signal.SIGTERM)


threading.Thread(target=stop, name="stop", daemon=True).start()
Site().run()

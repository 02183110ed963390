"""A Django site with routes that take parameters, some included from elsewhere."""

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import include, path, re_path

settings.configure(
    ALLOWED_HOSTS=["*"], DEBUG=False, ROOT_URLCONF=__name__, SECRET_KEY="none", MIDDLEWARE=[]
)


def answer(request, **parameters):
    return HttpResponse(f"{parameters}\n")


def stream(request, number):
    return StreamingHttpResponse([b"one\n", b"two\n"])


def fail(request, word):
    raise RuntimeError(word)


urlpatterns = [
    path("users/<int:number>/", answer),
    path("stream/<int:number>/", stream),
    path("raises/<word>/", fail),
    path("shop/", include([path("<slug:category>/<slug:item>/", answer)])),
    re_path(r"^articles/(?P<year>[0-9]{4})/$", answer),
]

django.setup()
application = get_wsgi_application()

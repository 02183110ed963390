"""A Django site in one file."""

from wsgiref.validate import validator

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import FileResponse, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["*"],
    DEBUG=False,
    ROOT_URLCONF=__name__,
    SECRET_KEY="a test needs no secret",
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
)


def index(request):
    return HttpResponse("hello from Django\n")


def form(request):
    files = {name: len(file.read()) for name, file in request.FILES.items()}
    return JsonResponse({"form": request.POST.dict(), "query": request.GET.dict(), "files": files})


def raw(request):
    return JsonResponse({"length": len(request.body)})


def stream(request):
    return StreamingHttpResponse(f"{number}\n" for number in range(3))


def source(request):
    return FileResponse(open(__file__, "rb"))


def error(request):
    raise RuntimeError("a Django view failed")


urlpatterns = [
    path("", index),
    path("form", form),
    path("raw", raw),
    path("stream", stream),
    path("source", source),
    path("error", error),
]
assert django.VERSION >= (4, 2)
application = get_wsgi_application()
validated = validator(application)

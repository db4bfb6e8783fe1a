"""An address whose view says nothing about who may open it."""

from django.http import HttpRequest, HttpResponse
from django.urls import path

from console.urls import handler403, handler404, handler500
from console.urls import urlpatterns as console_urls


def forgot(request: HttpRequest) -> HttpResponse:
    return HttpResponse("anything")


urlpatterns = [path("forgot", forgot), *console_urls]
__all__ = ["handler403", "handler404", "handler500", "urlpatterns"]

"""The pages of the bookshop, by their paths."""

from django.urls import path

from . import pages

urlpatterns = [
    path("", pages.home),
    path("book/<int:book_id>", pages.book),
    path("search", pages.search),
    path("api/review/<int:book_id>", pages.review),
    path("login", pages.login),
    path("photo", pages.photo),
    path("report", pages.report),
    path("delivery/<int:book_id>", pages.delivery),
    path("export/<int:category_id>", pages.export),
]

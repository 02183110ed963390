"""The pages of the bookshop, as a team would write them: nothing in here knows of Headway."""

import http.client
import io
import json
from collections.abc import Iterator

from django.conf import settings
from django.contrib import auth
from django.contrib.postgres.search import SearchQuery, SearchRank
from django.db.models import Avg, Count, F
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBadRequest,
    JsonResponse,
    StreamingHttpResponse,
)
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from PIL import Image

from .models import Author, Book, Category, Review
from .sales_report import similar_books

THUMBNAIL = (240, 240)
SEEN = 6


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """Twelve queries for a visitor who has a session."""
    seen = request.session.get("seen", [0])
    books = Book.objects.select_related("author")
    return render(
        request,
        "home.html",
        {
            "categories": list(Category.objects.order_by("name")),
            "newest": list(books.order_by("-id")[:8]),
            "cheapest": list(books.order_by("price_cents")[:8]),
            "dearest": list(books.order_by("-price_cents")[:8]),
            "book_of_the_day": books.filter(id__gte=1000).order_by("id").first(),
            "seen": list(books.filter(id__in=seen)),
            "reviews": list(Review.objects.select_related("book").order_by("-id")[:8]),
            "authors": list(Author.objects.order_by("-id")[:10]),
            "book_count": Book.objects.count(),
            "author_count": Author.objects.count(),
            "category_count": Category.objects.count(),
        },
    )


@require_GET
def book(request: HttpRequest, book_id: int) -> HttpResponse:
    found = get_object_or_404(Book.objects.select_related("author", "category"), id=book_id)
    reviews = Review.objects.filter(book=found)
    seen = [book_id, *(each for each in request.session.get("seen", []) if each != book_id)]
    request.session["seen"] = seen[:SEEN]
    return render(
        request,
        "book.html",
        {
            "book": found,
            "rating": reviews.aggregate(stars=Avg("stars"), count=Count("id")),
            "reviews": list(reviews.order_by("-id")[:10]),
            "others": list(Book.objects.filter(author=found.author).exclude(id=book_id)[:6]),
        },
    )


@require_GET
def search(request: HttpRequest) -> HttpResponse:
    text = request.GET.get("q", "")
    query = SearchQuery(text)
    books = Book.objects.filter(words=query).annotate(rank=SearchRank(F("words"), query))
    found = list(books.select_related("author").order_by("-rank", "id")[:20])
    return render(request, "search.html", {"text": text, "books": found})


@csrf_exempt
@require_POST
def review(request: HttpRequest, book_id: int) -> HttpResponse:
    """JSON in, JSON out."""
    try:
        said = json.loads(request.body)
        stars, text = int(said["stars"]), str(said["text"])
    except (ValueError, KeyError, TypeError):
        return JsonResponse({"error": "a review has stars and a text"}, status=400)
    found = get_object_or_404(Book, id=book_id)
    Review.objects.create(book=found, reader="api", stars=stars, text=text)
    rating = Review.objects.filter(book=found).aggregate(stars=Avg("stars"), count=Count("id"))
    return JsonResponse({"book": book_id, **rating})


@require_POST
def login(request: HttpRequest) -> HttpResponse:
    """Django's default hash of a password."""
    name, password = request.POST.get("name", ""), request.POST.get("password", "")
    user = auth.authenticate(request, username=name, password=password)
    if user is None:
        return HttpResponseBadRequest("name or password is wrong")
    auth.login(request, user)
    return redirect("/")


@require_POST
def photo(request: HttpRequest) -> HttpResponse:
    """Answers the photo that was uploaded as a thumbnail."""
    uploaded = request.FILES.get("photo")
    if uploaded is None:
        return HttpResponseBadRequest("there is no photo")
    with Image.open(uploaded) as image:
        image.thumbnail(THUMBNAIL)
        thumbnail = io.BytesIO()
        image.save(thumbnail, "JPEG")
    return HttpResponse(thumbnail.getvalue(), content_type="image/jpeg")


@require_GET
def report(request: HttpRequest) -> HttpResponse:
    """A page of pure Python: which books the same readers like."""
    ratings = (
        Review.objects.filter(id__lte=12_000)
        .order_by("id")
        .values_list("reader", "book_id", "stars")
    )
    return render(request, "report.html", {"pairs": similar_books(list(ratings))})


@require_GET
def delivery(request: HttpRequest, book_id: int) -> HttpResponse:
    """Asks a slow service when the book can be delivered."""
    connection = http.client.HTTPConnection("127.0.0.1", settings.DELIVERY_PORT, timeout=10)
    try:
        connection.request("GET", f"/{book_id}")
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return JsonResponse(answer)


@require_GET
def export(request: HttpRequest, category_id: int) -> StreamingHttpResponse:
    """The category's reviews as a stream of CSV."""
    rows = Review.objects.filter(book__category=category_id).order_by("id")
    values = rows.values_list("id", "book__title", "reader", "stars")

    def lines() -> Iterator[str]:
        for identifier, title, reader, stars in values.iterator(chunk_size=200):
            yield f'{identifier},"{title}",{reader},{stars}\n'

    return StreamingHttpResponse(lines(), content_type="text/csv")

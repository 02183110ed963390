"""Fills the bookshop's database, or makes it as it was after that (`sample_data.py --restore`).

The same seed makes the same books each time.
"""

from __future__ import annotations

import argparse
import random

import django
from django.db import connection

BOOKS, AUTHORS, REVIEWS, READERS = 3000, 300, 24_000, 200
CATEGORIES = (
    *("history", "poetry", "cooking", "travel", "physics", "music", "gardens", "crime"),
    *("biology", "sailing", "painting", "letters", "logic", "mountains", "theatre", "bread"),
)
SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "or", "pa", "ri", "sa", "te", "un")
PASSWORD = "open sesame"


def filled(chance: random.Random) -> None:
    """Runs with an empty database."""
    from django.contrib.auth.hashers import make_password
    from django.contrib.auth.models import User

    from bookshop.models import Author, Book, Category, Review

    vocabulary = ["".join(chance.choices(SYLLABLES, k=chance.randint(2, 4))) for _ in range(2000)]

    def text(count: int) -> str:
        return " ".join(chance.choices(vocabulary, k=count))

    categories = Category.objects.bulk_create([Category(name=name) for name in CATEGORIES])
    authors = Author.objects.bulk_create([Author(name=text(2).title()) for _ in range(AUTHORS)])
    books = Book.objects.bulk_create(
        Book(
            title=text(3).capitalize(),
            summary=text(60),
            price_cents=chance.randint(300, 9900),
            author=chance.choice(authors),
            category=chance.choice(categories),
        )
        for _ in range(BOOKS)
    )
    Review.objects.bulk_create(
        [
            Review(
                book=chance.choice(books),
                reader=f"reader{chance.randrange(READERS)}",
                stars=chance.randint(1, 5),
                text=text(20),
            )
            for _ in range(REVIEWS)
        ],
        batch_size=4000,
    )
    # All have the same password, so one hash does.
    password = make_password(PASSWORD)
    User.objects.bulk_create(
        User(username=f"reader{number}", password=password) for number in range(READERS)
    )
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE bookshop_book AS book SET words = to_tsvector('english',"
            " book.title || ' ' || book.summary || ' ' || category.name)"
            " FROM bookshop_category AS category WHERE category.id = book.category_id"
        )
        cursor.execute("VACUUM ANALYZE bookshop_book, bookshop_review, auth_user")


def restore() -> None:
    """Removes what a load left: reviews, sessions."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM bookshop_review WHERE id > %s", [REVIEWS])
        cursor.execute("ALTER SEQUENCE bookshop_review_id_seq RESTART WITH %s", [REVIEWS + 1])
        cursor.execute("TRUNCATE django_session")
        cursor.execute("VACUUM ANALYZE bookshop_review")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restore", action="store_true")
    options = parser.parse_args()
    django.setup()
    restore() if options.restore else filled(random.Random(1))


if __name__ == "__main__":
    main()

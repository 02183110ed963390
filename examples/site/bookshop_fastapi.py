"""The bookshop under FastAPI: `uvicorn bookshop_fastapi:app`.

The same pages, templates and tables, with SQL instead of an ORM and without sessions. What computes
or blocks is a plain function, which Starlette runs in a thread, as its documentation recommends.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import io
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import FastAPI, Form, HTTPException, Request, UploadFile
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates
from PIL import Image
from psycopg.rows import namedtuple_row
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

from bookshop.sales_report import similar_books

HERE = Path(__file__).resolve().parent / "bookshop"
DELIVERY_PORT = int(os.environ.get("BOOKSHOP_DELIVERY", "0"))
CONNECTIONS = 16
BOOKS = """\
SELECT book.id, book.title, book.summary, book.price_cents, author.name AS author_name,
       category.name AS category_name, book.author_id, book.category_id
FROM bookshop_book AS book
JOIN bookshop_author AS author ON author.id = book.author_id
JOIN bookshop_category AS category ON category.id = book.category_id
"""
pool = AsyncConnectionPool(
    f"host={os.environ.get('BOOKSHOP_DATABASE', '')} user=bookshop dbname=bookshop"
    f" password={os.environ.get('BOOKSHOP_PASSWORD', 'none')}",
    min_size=2,
    max_size=CONNECTIONS,
    open=False,
    kwargs={"row_factory": namedtuple_row, "autocommit": True},
)


class Named(NamedTuple):
    name: str


class Book:
    """A row of BOOKS, with the attributes that the templates read."""

    def __init__(self, row: Any) -> None:
        self.id, self.title, self.summary = row.id, row.title, row.summary
        self.price = f"{row.price_cents / 100:,.2f}"
        self.author, self.category = Named(row.author_name), Named(row.category_name)


class Review(NamedTuple):
    book: Any
    stars: int
    reader: str
    text: str


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    await pool.open(wait=True)
    yield
    await pool.close()


app = FastAPI(lifespan=lifespan)
app.mount("/static", StaticFiles(directory=HERE / "static"))
templates = Jinja2Templates(directory=HERE / "templates")


async def rows(query: str, *values: Any) -> list[Any]:
    async with pool.connection() as connection:
        cursor = await connection.execute(query, values)
        return await cursor.fetchall()


async def books(rest: str, *values: Any) -> list[Book]:
    return [Book(row) for row in await rows(f"{BOOKS} {rest}", *values)]


async def count(table: str) -> int:
    [row] = await rows(f"SELECT count(*) AS count FROM bookshop_{table}")
    return int(row.count)


@app.get("/")
async def home(request: Request) -> Response:
    reviews = await rows(
        "SELECT review.*, book.title FROM bookshop_review AS review"
        " JOIN bookshop_book AS book ON book.id = review.book_id ORDER BY review.id DESC LIMIT 8"
    )
    context = {
        "categories": await rows("SELECT * FROM bookshop_category ORDER BY name"),
        "newest": await books("ORDER BY book.id DESC LIMIT 8"),
        "cheapest": await books("ORDER BY price_cents LIMIT 8"),
        "dearest": await books("ORDER BY price_cents DESC LIMIT 8"),
        "book_of_the_day": (await books("WHERE book.id >= 1000 ORDER BY book.id LIMIT 1"))[0],
        "seen": [],
        "reviews": [
            Review({"id": r.book_id, "title": r.title}, r.stars, r.reader, r.text) for r in reviews
        ],
        "authors": await rows("SELECT * FROM bookshop_author ORDER BY id DESC LIMIT 10"),
        "book_count": await count("book"),
        "author_count": await count("author"),
        "category_count": await count("category"),
    }
    return templates.TemplateResponse(request, "home.html", context)


async def one_book(book_id: int) -> Any:
    found = await rows(f"{BOOKS} WHERE book.id = %s", book_id)
    if not found:
        raise HTTPException(404)
    return found[0]


async def rating_of(book_id: int) -> Any:
    [rating] = await rows(
        "SELECT avg(stars)::float AS stars, count(*) AS count"
        " FROM bookshop_review WHERE book_id = %s",
        book_id,
    )
    return rating


@app.get("/book/{book_id}")
async def book(request: Request, book_id: int) -> Response:
    row = await one_book(book_id)
    context = {
        "book": Book(row),
        "rating": await rating_of(book_id),
        "reviews": await rows(
            "SELECT * FROM bookshop_review WHERE book_id = %s ORDER BY id DESC LIMIT 10", book_id
        ),
        "others": await books(
            "WHERE author_id = %s AND book.id <> %s LIMIT 6", row.author_id, book_id
        ),
    }
    return templates.TemplateResponse(request, "book.html", context)


@app.get("/search")
async def search(request: Request, q: str = "") -> Response:
    found = await books(
        "WHERE words @@ plainto_tsquery(%s)"
        " ORDER BY ts_rank(words, plainto_tsquery(%s)) DESC, book.id LIMIT 20",
        q,
        q,
    )
    return templates.TemplateResponse(request, "search.html", {"text": q, "books": found})


class Said(BaseModel):
    stars: int
    text: str


@app.post("/api/review/{book_id}")
async def review(book_id: int, said: Said) -> dict[str, Any]:
    await one_book(book_id)
    await rows(
        "INSERT INTO bookshop_review (book_id, reader, stars, text)"
        " VALUES (%s, 'api', %s, %s) RETURNING id",
        book_id,
        said.stars,
        said.text,
    )
    rating = await rating_of(book_id)
    return {"book": book_id, "stars": rating.stars, "count": rating.count}


def is_password(password: str, encoded: str) -> bool:
    """Compares as Django's PBKDF2PasswordHasher does."""
    _, iterations, salt, digest = encoded.split("$")
    made = hashlib.pbkdf2_hmac("sha256", password.encode(), salt.encode(), int(iterations))
    return hmac.compare_digest(base64.b64encode(made).decode(), digest)


@app.post("/login")
async def login(name: str = Form(), password: str = Form()) -> Response:
    found = await rows("SELECT password FROM auth_user WHERE username = %s", name)
    if not found or not await run_in_threadpool(is_password, password, found[0].password):
        raise HTTPException(400, "name or password is wrong")
    return RedirectResponse("/", 302)


@app.post("/photo")
def photo(photo: UploadFile) -> Response:
    with Image.open(photo.file) as image:
        image.thumbnail((240, 240))
        thumbnail = io.BytesIO()
        image.save(thumbnail, "JPEG")
    return Response(thumbnail.getvalue(), media_type="image/jpeg")


@app.get("/report")
async def report(request: Request) -> Response:
    ratings = await rows(
        "SELECT reader, book_id, stars FROM bookshop_review WHERE id <= 12000 ORDER BY id"
    )
    pairs = await run_in_threadpool(similar_books, [tuple(row) for row in ratings])
    return templates.TemplateResponse(request, "report.html", {"pairs": pairs})


@app.get("/delivery/{book_id}")
async def delivery(book_id: int) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", DELIVERY_PORT)
    try:
        writer.write(f"GET /{book_id} HTTP/1.1\r\nHost: delivery\r\n\r\n".encode())
        answer = await reader.read()
    finally:
        writer.close()
    return json.loads(answer.partition(b"\r\n\r\n")[2])


@app.get("/export/{category_id}")
async def export(category_id: int) -> Response:
    async def lines() -> AsyncIterator[str]:
        async with (
            pool.connection() as connection,
            connection.transaction(),
            connection.cursor("export") as cursor,
        ):
            await cursor.execute(
                "SELECT review.id, title, reader, stars FROM bookshop_review AS review"
                " JOIN bookshop_book AS book ON book.id = review.book_id"
                " WHERE category_id = %s ORDER BY review.id",
                [category_id],
            )
            while found := await cursor.fetchmany(200):
                for row in found:
                    yield f'{row.id},"{row.title}",{row.reader},{row.stars}\n'

    return StreamingResponse(lines(), media_type="text/csv")

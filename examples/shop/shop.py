"""A small Flask shop: three light pages, and one that is CPU-heavy.

    headway serve shop:app --threads 4

`make demo` serves it under load and prints where its threads' time went. Nothing in here knows of
Headway: it is a Flask application like any other.
"""

import sqlite3
from contextlib import closing

import flask

import catalogue
import recommendations

app = flask.Flask(__name__)
app.secret_key = "not a secret: this shop sells nothing"

CATALOGUE = catalogue.Catalogue()

# Ratings change rarely; the shop reads them once.
with closing(CATALOGUE.connect()) as _connection:
    RATINGS = catalogue.all_ratings(_connection)


def database() -> sqlite3.Connection:
    """This request's connection."""
    if "database" not in flask.g:
        flask.g.database = CATALOGUE.connect()
    connection: sqlite3.Connection = flask.g.database
    return connection


@app.teardown_appcontext
def close_database(_error: BaseException | None) -> None:
    connection = flask.g.pop("database", None)
    if connection is not None:
        connection.close()


@app.template_filter("price")
def price(cents: int) -> str:
    return f"{cents / 100:,.2f}"


@app.get("/")
def home() -> str:
    return flask.render_template("home.html", products=catalogue.best_rated(database(), 12))


@app.get("/product/<int:product_id>")
def product(product_id: int) -> str:
    found = catalogue.product(database(), product_id) or flask.abort(404)
    return flask.render_template("product.html", product=found)


@app.get("/cart")
def cart() -> str:
    counts: dict[str, int] = flask.session.get("cart", {})
    products = catalogue.products(database(), [int(key) for key in counts])
    lines = [(row, counts[str(row["id"])]) for row in products]
    total = sum(row["price_cents"] * count for row, count in lines)
    return flask.render_template("cart.html", lines=lines, total=total)


@app.post("/cart/<int:product_id>")
def add_to_cart(product_id: int) -> flask.typing.ResponseReturnValue:
    catalogue.product(database(), product_id) or flask.abort(404)
    counts: dict[str, int] = flask.session.setdefault("cart", {})
    counts[str(product_id)] = counts.get(str(product_id), 0) + 1
    flask.session.modified = True
    return flask.redirect(flask.url_for("cart"), 303)


@app.get("/recommendations/<int:product_id>")
def recommend(product_id: int) -> str:
    found = catalogue.product(database(), product_id) or flask.abort(404)
    similar = dict(recommendations.most_similar(RATINGS, product_id, 10))
    products = catalogue.products(database(), list(similar))
    return flask.render_template(
        "recommendations.html", product=found, products=products, similar=similar
    )

"""The shop's data: products, and the stars that customers gave them, made anew at each start.

The same seed gives the same shop on every machine. The database is a file of its own in a
temporary folder, which goes when the process ends; every thread opens it for itself.
"""

import random
import sqlite3
import tempfile
from pathlib import Path

PRODUCTS = 2_500
CUSTOMERS = 300
RATINGS_PER_PRODUCT = 100

SCHEMA = """
CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price_cents INTEGER NOT NULL);
CREATE TABLE rating (
    product_id INTEGER NOT NULL REFERENCES product (id),
    customer_id INTEGER NOT NULL,
    stars INTEGER NOT NULL CHECK (stars BETWEEN 1 AND 5),
    PRIMARY KEY (product_id, customer_id)
) WITHOUT ROWID;
"""

MATERIALS = ("Oak", "Linen", "Copper", "Wool", "Glass", "Stone", "Cork", "Brass", "Bamboo", "Clay")
THINGS = ("lamp", "bowl", "chair", "kettle", "blanket", "clock", "shelf", "vase", "tray", "mirror")


class Catalogue:
    """Where the shop's database lies. Connections are the callers' to open and to close."""

    def __init__(self, seed: int = 1) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="shop-")
        self._path = Path(self._folder.name) / "shop.sqlite"
        connection = self.connect()
        connection.executescript(SCHEMA)
        with connection:
            fill(connection, random.Random(seed))
        connection.close()

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path)
        connection.row_factory = sqlite3.Row
        return connection

    def close(self) -> None:
        """Removes the database. A process that ends without it removes it too."""
        self._folder.cleanup()


def fill(connection: sqlite3.Connection, chance: random.Random) -> None:
    """Puts products and ratings into an empty database."""
    for product_id in range(1, PRODUCTS + 1):
        name = f"{chance.choice(MATERIALS)} {chance.choice(THINGS)} no. {product_id}"
        price_cents = chance.randrange(500, 20_000)
        connection.execute("INSERT INTO product VALUES (?, ?, ?)", (product_id, name, price_cents))
        customers = chance.sample(range(CUSTOMERS), RATINGS_PER_PRODUCT)
        connection.executemany(
            "INSERT INTO rating VALUES (?, ?, ?)",
            [(product_id, customer, chance.randint(1, 5)) for customer in customers],
        )


def best_rated(connection: sqlite3.Connection, limit: int) -> list[sqlite3.Row]:
    """The products of a window of the catalogue with the most stars on average."""
    return connection.execute(
        "SELECT product.*, avg(stars) AS stars FROM product JOIN rating ON product_id = id"
        " WHERE id <= 60 GROUP BY id ORDER BY stars DESC, id LIMIT ?",
        (limit,),
    ).fetchall()


def product(connection: sqlite3.Connection, product_id: int) -> sqlite3.Row | None:
    """One product with its average rating, or None where there is no such product."""
    row: sqlite3.Row | None = connection.execute(
        "SELECT product.*, avg(stars) AS stars, count(stars) AS ratings"
        " FROM product JOIN rating ON product_id = id WHERE id = ? GROUP BY id",
        (product_id,),
    ).fetchone()
    return row


def products(connection: sqlite3.Connection, ids: list[int]) -> list[sqlite3.Row]:
    """The products with these ids, in this order; ids that name no product are left out."""
    marks = ",".join("?" * len(ids))
    rows = connection.execute(f"SELECT * FROM product WHERE id IN ({marks})", ids)
    by_id = {row["id"]: row for row in rows}
    return [by_id[product_id] for product_id in ids if product_id in by_id]


def all_ratings(connection: sqlite3.Connection) -> dict[int, dict[int, int]]:
    """Stars by customer, by product."""
    ratings: dict[int, dict[int, int]] = {}
    for product_id, customer_id, stars in connection.execute("SELECT * FROM rating"):
        ratings.setdefault(product_id, {})[customer_id] = stars
    return ratings

"""The example shop, and the demo that puts a load on it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

SHOP = Path(__file__).resolve().parent.parent / "examples" / "shop"


@pytest.fixture(scope="module")
def shop() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.syspath_prepend(SHOP)
        import shop
    yield shop
    shop.CATALOGUE.close()
    for name in ("shop", "catalogue", "recommendations"):
        del sys.modules[name]


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SHOP)
    import demo

    return demo


def test_every_page_answers(shop: ModuleType) -> None:
    visitor = shop.app.test_client()
    for path in ("/", "/product/5", "/cart", "/recommendations/5"):
        assert visitor.get(path).status_code == 200
    for path in ("/product/0", "/recommendations/0"):
        assert visitor.get(path).status_code == 404


def test_the_cart_keeps_what_was_added(shop: ModuleType) -> None:
    visitor = shop.app.test_client()
    assert "It is empty" in visitor.get("/cart").text
    for _ in range(2):
        assert visitor.post("/cart/5", follow_redirects=True).status_code == 200
    name = visitor.get("/product/5").text.partition("<h1>")[2].partition("</h1>")[0]
    assert f"<td>{name}</td><td>2</td>" in visitor.get("/cart").text


def test_recommendations_start_with_the_most_alike() -> None:
    program = (
        "from recommendations import most_similar\n"
        "ratings = {1: {1: 5, 2: 1, 3: 3}, 2: {1: 4, 2: 2, 3: 3}}\n"
        "ratings |= {3: {1: 1, 2: 5, 3: 3}, 4: {9: 1}}\n"
        "print([product for product, _ in most_similar(ratings, 1, 3)])"
    )
    said = subprocess.check_output([sys.executable, "-c", program], cwd=SHOP, text=True)
    assert json.loads(said) == [2, 4, 3]


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([1.0], 0.5, 1.0), ([3.0, 1.0, 2.0, 4.0], 0.5, 2.0), (list(range(1, 101)), 0.99, 99)],
)
def test_percentiles(demo: ModuleType, values: list[float], share: float, expected: float) -> None:
    assert demo.percentile(values, share) == expected


def test_targets_are_told_apart(demo: ModuleType) -> None:
    targets = ("/", "/product/7", "/cart", "/recommendations/7", "/gil", "/nothing")
    pages = ["home", "product", "cart", "recommendations", None, None]
    assert [demo.page_of(target) for target in targets] == pages


@pytest.mark.serial
@pytest.mark.slow("runs the demo")
def test_the_demo_ends_with_all_tables() -> None:
    done = subprocess.run(
        [sys.executable, SHOP / "demo.py", "--seconds", "4"],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tables, told, verdicts = done.stdout.partition("\nWhat the recorder makes of it:\n")
    rows = [line.split()[0] for line in tables.splitlines() if line.startswith("  ")]
    light = ["page", "home", "product", "cart"]
    beside = [*light, "recommendations", "GIL:"]
    # Free-threaded builds serve with a GIL too, unless an option says otherwise.
    assert rows == [*light, "GIL:", *beside, *beside]
    assert "A product page took" in done.stdout
    assert "Under the policy `priority` a product page took" in done.stdout
    assert told
    assert [line for line in verdicts.splitlines() if line.startswith("  Light pages alone: ")]
    assert "Too little was seen" not in verdicts

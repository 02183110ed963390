"""The pages and drawings that the code is the source of. They are committed, since people read them
where the repository lies; `make docs` writes them anew, and tests/test_docs.py fails where one is
stale.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from generators import (
    addresses,
    before_after,
    curves,
    drawings,
    json_documents,
    metrics,
    options,
    python_api,
    terminal,
    thresholds,
    verbs,
)

DOCS = Path(__file__).resolve().parent.parent
PAGES = {
    "reference/cli.md": verbs.page,
    "reference/options.md": options.page,
    "reference/json.md": json_documents.page,
    "reference/metrics.md": metrics.page,
    "reference/api.md": python_api.page,
    "reference/thresholds.md": thresholds.page,
}


def files() -> Iterator[tuple[Path, bytes]]:
    """Each generated file, or one with a generated part, and its content."""
    # argparse reads the width of help texts from here.
    os.environ["COLUMNS"] = "100"
    for name, page in PAGES.items():
        yield DOCS / name, page().encode()
    for name in addresses.PAGES:
        file = addresses.ROOT / name
        yield file, addresses.fill(file.read_text(), addresses.addresses()).encode()
    with TemporaryDirectory() as folder:
        for name in drawings.DRAWINGS:
            yield DOCS / "explanation" / "drawings" / name, drawings.draw(name, Path(folder))
        yield DOCS / "drawings" / "before_after.svg", before_after.draw(Path(folder))
    yield DOCS / "drawings" / "report.svg", terminal.draw()
    for curve in curves.curves():
        yield DOCS / "drawings" / curve.file, curves.draw(curve)


def write() -> None:
    """Writes those that changed."""
    for file, content in files():
        if not file.exists() or file.read_bytes() != content:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

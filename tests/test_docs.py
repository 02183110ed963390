"""The site is built without a warning, and its generated pages have what the code has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from headway import gil
from headway.recorder.metrics.definitions import METRICS
from headway.report.model import GilReport, GilRow, ThreadRow
from headway.server.config.options import OPTIONS
from headway.verbs import VERBS, added_verbs

ROOT = Path(__file__).resolve().parent.parent
GIL_PAGE = ROOT / "site/explanation/gil.html"


GENERATED = ("docs/reference/*.md", "docs/drawings/*", "docs/explanation/drawings/*")


def generated() -> dict[Path, bytes]:
    return {file: file.read_bytes() for pattern in GENERATED for file in ROOT.glob(pattern)}


@pytest.mark.slow("builds the site of the documents")
@pytest.mark.timeout(600)
def test_the_site_has_what_the_code_has() -> None:
    committed = generated()
    built = subprocess.run([ROOT / "scripts/docs"], capture_output=True, text=True, cwd=ROOT)
    assert built.returncode == 0, built.stdout + built.stderr
    fresh = generated()
    stale = [file.name for file in fresh if committed.get(file) != fresh[file]]
    assert stale == [], "`make docs` has written these anew: commit them"
    verbs = (ROOT / "site/reference/cli.html").read_text()
    assert [
        verb.name for verb in (*VERBS, *added_verbs()) if f'id="headway-{verb.name}"' not in verbs
    ] == []
    names = (ROOT / "site/reference/api.html").read_text()
    public = [*(f"headway.gil.{name}" for name in gil.__all__), "headway.serve"]
    assert [name for name in public if f">{name}<" not in names] == []
    options = (ROOT / "site/reference/options.html").read_text()
    assert [name for name in OPTIONS if f">{name}<" not in options] == []
    metrics = (ROOT / "site/reference/metrics.html").read_text()
    assert [each.sample_name for each in METRICS if f">{each.sample_name}<" not in metrics] == []
    documents = (ROOT / "site/reference/json.html").read_text()
    keys = [*GilReport.FIELDS, *GilRow.FIELDS, *ThreadRow.FIELDS]
    assert [key for key in keys if f">{key}<" not in documents] == []
    drawings = re.findall(r'src="\.\./(_images/[^"]+\.svg)"', GIL_PAGE.read_text())
    assert len(drawings) == 3
    for drawing in drawings:
        assert "compute-0" in (ROOT / "site" / drawing).read_text()

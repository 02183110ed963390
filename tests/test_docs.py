"""The site is built without a warning, and has every verb and every public name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headway import cli, gil

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow("builds the site of the documents")
@pytest.mark.timeout(600)
def test_the_site_has_every_verb_and_every_public_name() -> None:
    built = subprocess.run([ROOT / "scripts/docs"], capture_output=True, text=True, cwd=ROOT)
    assert built.returncode == 0, built.stdout + built.stderr
    verbs = (ROOT / "site/reference/cli.html").read_text()
    assert [verb.name for verb in cli.VERBS if f'id="headway-{verb.name}"' not in verbs] == []
    names = (ROOT / "site/reference/api.html").read_text()
    public = [*(f"headway.gil.{name}" for name in gil.__all__), "headway.serve"]
    assert [name for name in public if f'id="{name}"' not in names] == []

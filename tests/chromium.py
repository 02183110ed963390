"""Chromium, for tests that look at a page or a drawing. Import it once Playwright is there."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

Scheme = Literal["dark", "light"]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium: scripts/debian-packages"
)


@contextmanager
def started(*options: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Root may not use Chromium's sandbox.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*arguments, *options])
        yield browser
        browser.close()


@contextmanager
def page_of_files(browser: Browser, width: int, height: int, scheme: Scheme) -> Iterator[Page]:
    """A page for files alone. Fails on an error in the console and on any other request."""
    wrong: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(f"raised: {error}"))
    page.on(
        "request",
        lambda request: wrong.append(request.url) if request.url[:7] != "file://" else None,
    )
    yield page
    context.close()
    assert wrong == []


def luminance(colour: str) -> float:
    """The luminance of a computed colour, as the Web Content Accessibility Guidelines define it."""
    parts = [float(each) / 255 for each in re.findall(r"[\d.]+", colour)[:3]]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)

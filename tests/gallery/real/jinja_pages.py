"""Jinja2 renders the same page in four threads."""

import threading
import time

from jinja2 import Template

PAGE = Template("{% for row in rows %}<p>{{ row }} {{ loop.index }}</p>{% endfor %}")
END_S = time.monotonic() + 4


def render():
    while time.monotonic() < END_S:
        PAGE.render(rows=range(3000))


for number in range(4):
    threading.Thread(target=render, name=f"render-{number}").start()

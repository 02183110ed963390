"""Beautiful Soup parses pages in three threads."""

import threading
import time

from bs4 import BeautifulSoup

PAGE = "<html>" + "".join(f"<p class=x>{n} <b>text</b></p>" for n in range(400)) + "</html>"
END_S = time.monotonic() + 5


def parse():
    while time.monotonic() < END_S:
        BeautifulSoup(PAGE, "html.parser").find_all("p")


for number in range(3):
    threading.Thread(target=parse, name=f"parse-{number}").start()

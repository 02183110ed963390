"""lxml parses a large document, with the GIL dropped or kept as lxml does."""

from lxml import etree
from ticker import beside_a_ticker

XML = b"<r>" + b"".join(b"<i n='%d'>text</i>" % n for n in range(20_000)) + b"</r>"


def work():
    for node in etree.fromstring(XML).iter("i"):
        node.get("n")


beside_a_ticker(work)

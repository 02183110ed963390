"""The page of `headway bench --html`: its structure, what it tells, and that strings stay strings.

test_bench_page_browser.py tests its look in a browser.
"""

from __future__ import annotations

import itertools
import math
import re
import signal
import subprocess
import sys
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from launch import run_main, start
from made_results import METADATA, Made, made_results
from made_rows import results, row

pytest.importorskip("matplotlib", reason="matplotlib is not installed here")

from headway.output import charts
from headway.output import page as output_page
from headway.output.table import Chart, Series
from headway.report import columns
from headway_lab import page

HOSTILE = "<script>alert(1)</script>&amp;\"'$x^2$"
VERDICTS = ("agrees", "differs")
VOID = {"meta", "link", "br", "hr", "img", "input"}
SHORT = ("--values", "1", "--seconds", "0.05", "--switch-interval", "0.005", "--threads", "1")


class Element:
    def __init__(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: list[Element] = []
        self.own_text: list[str] = []

    @property
    def text(self) -> str:
        """In the order of the document, blanks as a browser shows them."""
        return " ".join(" ".join(self.own_text).split())

    def all(self, tag: str) -> list[Element]:
        found = [self] if self.tag == tag else []
        return found + [each for child in self.children for each in child.all(tag)]


class Document(HTMLParser):
    """Fails on elements that are closed in another order than they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("document", {})
        self.open = [self.root]
        self.feed(text)
        self.close()
        assert self.open == [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        assert len(element.attributes) == len(attrs), f"an attribute twice in {tag}"
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # Outside of SVG, HTML has no such tags.
        assert any(each.tag == "svg" for each in self.open), tag
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.own_text.append(data)

    def all(self, tag: str) -> list[Element]:
        return self.root.all(tag)

    def one(self, tag: str) -> Element:
        (found,) = self.all(tag)
        return found


@pytest.fixture(scope="module")
def drawn() -> str:
    return page.draw(METADATA, [(Made(), made_results())])


@pytest.fixture(scope="module")
def document(drawn: str) -> Document:
    return Document(drawn)


def test_it_needs_no_network_no_script_and_no_other_file(drawn: str, document: Document) -> None:
    assert "//" not in drawn
    for tag in ("script", "link", "img", "iframe", "object", "image"):
        assert document.all(tag) == []
    assert_links_lead_somewhere(document)
    assert set(re.findall(r"url\((.)", drawn)) == {"#"}
    assert "@import" not in drawn


def assert_links_lead_somewhere(document: Document) -> None:
    """On the page itself."""
    targets = [each.attributes["href"] for each in [*document.all("a"), *document.all("use")]]
    assert targets
    ids = {each.attributes.get("id") for each in every(document)}
    assert all(target and target[0] == "#" and target[1:] in ids for target in targets)
    assert all(not set(each or "") & set(" <>\"'") for each in ids)


def every(document: Document) -> list[Element]:
    def below(element: Element) -> list[Element]:
        return [element, *(each for child in element.children for each in below(child))]

    return below(document.root)


def test_no_two_elements_share_an_id(document: Document) -> None:
    ids = [each.attributes["id"] for each in every(document) if "id" in each.attributes]
    assert len(ids) == len(set(ids)) > 5


def test_the_same_results_make_the_same_page(drawn: str) -> None:
    assert page.draw(METADATA, [(Made(), made_results())]) == drawn


def test_a_free_threaded_build_is_named_as_one() -> None:
    said = page.draw({"python": "3.13.5", "free_threading": True}, [(Made(), made_results())])
    assert f"<title>{page.TITLE}: CPython 3.13.5t</title>" in said


def test_it_has_a_language_a_title_and_headings_in_order(document: Document) -> None:
    assert document.one("html").attributes["lang"] == "en"
    assert document.one("head").all("title")[0].text == f"{page.TITLE}: CPython 3.13.0"
    levels = [int(each.tag[1]) for each in every(document) if re.fullmatch("h[1-6]", each.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_it_says_what_was_measured_where(document: Document) -> None:
    said = document.one("dl").text
    for words in (
        "CPython 3.13.0 (main, Oct 7 2024, 05:02:14) [GCC 12.2.0]",
        "'--with-lto'",
        "AMD EPYC, 2 processors, x86_64, Linux 6.1.0",
        "stock (plain python), priority",
        "2026-11-22T08:00:00Z, for 13 minutes, by Headway 0.1.0",
        "a load of 0.12 before, 0.4 % of the time taken by a hypervisor",
    ):
        assert words in said


def test_metadata_that_is_not_there_is_not_told_and_what_is_new_is() -> None:
    assert output_page.in_words({}) == []
    assert output_page.in_words(
        {"python": "3.15.0", "free_threading": True, "moon_phase": "full"}
    ) == [
        ("Interpreter", "CPython 3.15.0, a free-threaded build"),
        ("moon phase", "full"),
    ]


def test_a_simulation_says_that_it_is_one_and_of_what() -> None:
    simulated = {"seed": 7, "machine": {"cores": 4, "wake_idle_ns": 30_000}}
    said = page.draw({"simulated": simulated}, [(Made(), made_results())])
    assert "Simulated by <code>headway simulate</code>" in said
    assert "seed 7, cores 4, wake idle ns 30000" in said
    assert page.MEASURED not in said
    assert "Doubtful" not in said


def test_what_makes_figures_doubtful_is_told(drawn: str) -> None:
    assert "Doubtful" not in drawn
    assert "Doubtful" in page.draw({**METADATA, "load": 5.0}, [])


def test_an_experiment_opens_with_what_it_shows(document: Document) -> None:
    (section,) = [each for each in document.all("section") if each.attributes.get("id") == "made"]
    assert section.children[0].text == "made: requests that nobody made"
    assert section.children[1].text == Made.shows
    assert "1 of 3 statements agree" in document.one("nav").text


def test_statements_have_their_verdict_and_why_they_differ(document: Document) -> None:
    said = [each for each in document.all("li") if each.attributes.get("class") in VERDICTS]
    assert [each.attributes["class"] for each in said] == ["agrees", "differs", "differs"]
    assert said[0].text == "agrees a ratio that agrees: 1.02 Allowed: from 0.9 to 1.1"
    assert said[1].text == (
        "differs a ratio that differs: 0.500 Allowed: from 0.9 to 1.1 Why: a cause"
    )
    assert said[2].text == "differs a ratio that nobody knows: - Allowed: at least 0.9"


def test_tables_say_what_their_rows_and_columns_are(document: Document) -> None:
    tables = document.all("table")
    assert [each.text for each in document.all("caption")] == [
        "stock: requests/s",
        "priority: requests/s",
        "row by row",
    ]
    for table in tables:
        heads, *rows = table.all("tr")
        assert {cell.attributes["scope"] for cell in heads.children} == {"col"}
        for line in rows:
            assert len(line.children) == len(heads.children)
            assert line.children[0].tag == "th"
            assert line.children[0].attributes["scope"] == "row"


def test_cells_have_the_median_its_interval_and_what_was_published(document: Document) -> None:
    lines = document.all("table")[0].all("tr")
    heads, first, second = ([cell.text for cell in line.children] for line in lines)
    assert heads == ["switch interval", "1 threads", "2 threads"]
    assert first == [
        "0.005",
        f"101 100 {output_page.DASH} 102 published 90.0",
        f"50.0 unstable 20.0 {output_page.DASH} 70.0 published 45.0",
    ]
    assert second[2] == "not measured [1]"


def test_rows_without_values_have_their_reason_once(drawn: str, document: Document) -> None:
    (reasons,) = [each for each in document.all("ul") if each.attributes.get("class") == "reasons"]
    assert [each.text for each in reasons.children] == [
        "[1] no room policy stock, switch interval 0.0001, threads 2",
        "[2] echo_server.py ended policy priority, switch interval 0.0001, threads 2",
        "1 measurement of policy priority, switch interval 0.005, threads 2 failed: "
        "a deadline passed",
    ]
    assert drawn.count("no room") == 1


def test_what_was_calibrated_is_told() -> None:
    made = made_results()
    made.calibration = {"loops": 1_234_567, "call_ms": {"A": 0.5}, "pinned": True}
    said = Document(page.draw({}, [(Made(), made)])).one("main").text
    assert "Calibrated before all rounds: loops 1,234,567, call ms (A 0.500), pinned True." in said


def test_charts_have_a_name_and_are_described(document: Document) -> None:
    drawings = document.all("svg")
    assert len(drawings) == 3
    for svg in drawings:
        assert svg.attributes["role"] == "img"
        title, description, *_ = svg.children
        assert (title.tag, description.tag) == ("title", "desc")
        named = f"{title.attributes['id']} {description.attributes['id']}"
        assert svg.attributes["aria-labelledby"] == named
    assert drawings[0].children[1].text == (
        "requests/s by switch interval. "
        "1 threads, measured: 3,205 at 100 µs, 101 at 5 ms. "
        "1 threads, published: 3,000 at 100 µs, 90 at 5 ms. "
        "2 threads, measured: 50 at 5 ms. "
        "2 threads, published: 45 at 5 ms."
    )
    assert (
        drawings[2].children[1].text
        == "share (%) by wait. waits, measured, at its highest: 6 at 5 ms."
    )


def texts(svg: str) -> list[str]:
    return texts_of(Document(svg).root)


def texts_of(drawing: Element) -> list[str]:
    return [each.text for each in drawing.all("text")]


def test_axes_name_what_was_measured_and_publications_have_a_line(document: Document) -> None:
    words = texts_of(document.all("svg")[0])
    for expected in ("100 µs", "5 ms", "switch interval", "requests/s", "1 threads", "published"):
        assert expected in words
    words = texts_of(document.all("svg")[1])
    # A row that failed still shows its published figure.
    assert "published" in words


def test_multiples_of_an_interval_are_marked(document: Document) -> None:
    words = texts_of(document.all("svg")[2])
    for count in range(1, 6):
        assert f"{count} {charts.TIMES}" in words
    assert "multiples of 5 ms" in words


def test_marks_that_would_hide_each_other_are_not_named() -> None:
    waits = Series("waits", [(place / 1e5, 1.0, 1.0, 1.0) for place in range(1, 10_000)])
    marked = Chart("waits", "wait (s)", "share", [waits], log_x=True, multiples_of=0.005)
    drawing = Document(charts.draw(marked, "it")).one("svg")
    named = [
        float(each.attributes["x"] or 0)
        for each in drawing.all("text")
        if charts.TIMES in each.text
    ]
    assert 2 <= len(named) < charts.MOST_MULTIPLES
    assert all(after - before > 25 for before, after in itertools.pairwise(named))


def test_hostile_strings_stay_text() -> None:
    class Hostile(Made):
        name = prefix = summary = shows = HOSTILE

    metadata = {name: HOSTILE for name in METADATA if isinstance(METADATA[name], str)}
    metadata[HOSTILE] = HOSTILE
    made = made_results(HOSTILE)
    made.calibration = {HOSTILE: HOSTILE}
    for each in made:
        each.parameters["more"] = HOSTILE
    drawn = page.draw(metadata, [(Hostile(), made)])
    document = Document(drawn)
    assert document.all("script") == []
    assert "<script" not in drawn
    assert HOSTILE in document.all("caption")[0].text
    assert HOSTILE in document.all("svg")[0].text
    assert HOSTILE in document.one("dl").text
    assert_links_lead_somewhere(document)


def chart(*series: Series, **options: bool) -> Chart:
    return Chart("a chart", "threads", "time (s)", series, **options)


@pytest.mark.parametrize("name", ["\N{CJK UNIFIED IDEOGRAPH-4E00}", "$unfinished", "_hidden"])
def test_any_name_can_be_a_line_s(name: str) -> None:
    assert name in texts(charts.draw(chart(Series(name, [(1.0, 2.0, 1.9, 2.1)])), "it"))


def test_what_cannot_be_printed_is_escaped() -> None:
    class Odd(Made):
        prefix = "\x00\x1b[31m\ud800\n"

    drawn = page.draw(METADATA, [(Odd(), made_results(Odd.prefix))])
    drawn.encode()
    shown = "\\x00\\x1b[31m\\ud800\\n"
    assert f"{shown}stock: requests/s" in Document(drawn).all("caption")[0].text
    assert f"{shown}1 threads" in Document(drawn).all("svg")[0].text


def test_a_long_name_is_cut() -> None:
    drawn = texts(charts.draw(chart(Series("x" * 200, [(1.0, 2.0, 1.9, 2.1)])), "it"))
    assert columns.name("x" * 200, charts.MAX_NAME) in drawn


@pytest.mark.parametrize(
    "points",
    [
        [(0.0, 0.0, 0.0, 0.0)],
        [(1.0, 5.0, 5.0, 5.0)],
        [(1.0, math.nan, math.nan, math.nan), (2.0, 1.0, 0.0, math.inf)],
        [(1.0, -3.0, -4.0, -2.0), (2.0, 3.0, 2.0, 4.0)],
        [(float(place), float(place), 0.0, 2.0 * place) for place in range(40)],
    ],
)
@pytest.mark.parametrize("log", [False, True])
def test_odd_points_are_drawn_or_left_out(
    points: list[tuple[float, float, float, float]], log: bool
) -> None:
    sane = Series("sane", [(1.0, 2.0, 1.9, 2.1)])
    svg = charts.draw(chart(Series("odd", points), sane, log_x=log, log_y=log), "it")
    assert "nan" not in svg
    assert "inf" not in svg
    assert "sane" in texts(svg)


def test_a_chart_without_points_is_none() -> None:
    assert charts.draw(chart(), "it") == ""
    assert charts.draw(chart(Series("empty", [])), "it") == ""
    assert charts.draw(chart(Series("low", [(1.0, 0.0, 0.0, 0.0)]), log_y=True), "it") == ""


def test_lines_can_be_told_apart_without_colours() -> None:
    looks = [charts._look(place) for place in range(3 * charts.SERIES_COLOURS)]
    assert len(set(looks)) == len(looks)
    neighbours = [marker for _, marker in looks[: charts.SERIES_COLOURS]]
    assert len(set(neighbours)) == charts.SERIES_COLOURS


def luminance(colour: str) -> float:
    """WCAG 2, relative luminance."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_seen_on_their_page(scheme: str) -> None:
    """WCAG 2: 4.5 for text, 3 for graphics."""
    style = files("headway.output").joinpath("page.css").read_text("utf-8")
    light, dark = re.findall(r":root \{([^}]*--page[^}]*)\}", style)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", light if scheme == "light" else dark))
    assert len([name for name in colours if name.startswith("series-")]) == charts.SERIES_COLOURS
    for name in ("ink", "muted", "agrees", "differs"):
        for ground in ("page", "sunken"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    for place in range(charts.SERIES_COLOURS):
        assert contrast(colours[f"series-{place}"], colours["page"]) >= 3, place


def test_results_are_made_into_a_page_and_a_file_into_the_same(tmp_path: Path) -> None:
    file, kept, again = (tmp_path / name for name in ("page.html", "kept.json", "again.html"))
    options = ("--policy", "stock", "--html", file, "--json", kept)
    result = run_main("bench", "countdown", *SHORT, *options)
    assert result.returncode == 0, result.stderr
    document = Document(file.read_text())
    assert [each.attributes.get("id") for each in document.all("section")][1:] == ["countdown"]
    assert document.all("td")
    result = run_main("bench", "--from", kept, "--html", again)
    assert result.returncode == 0, result.stderr
    assert again.read_bytes() == file.read_bytes()
    assert sorted(tmp_path.iterdir()) == sorted([file, kept, again])


@pytest.mark.slow("runs an experiment")
def test_what_was_measured_before_an_interruption_is_made_into_a_page(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    options = ("--values", "500", *SHORT[2:], "--policy", "stock", "--html", str(file))
    process = start("bench", "countdown", *options)
    try:
        assert process.stderr is not None
        said = ""
        while "round 3" not in said:
            said = process.stderr.readline()
            assert said, "it ended by itself"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert Document(file.read_text()).all("td")


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_measured() -> None:
    result = run_main("bench", "countdown", *SHORT, "--html", "/nonexistent/page.html")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == (
        "headway bench: --html '/nonexistent/page.html' cannot be written: "
        "No such file or directory\n"
    )


def test_without_matplotlib_a_page_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError('gone', name='matplotlib')")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        "from headway.cli import main; sys.exit(main())"
    )
    arguments = ["bench", "countdown", *SHORT, "--html", str(tmp_path / "page.html")]
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == (
        "headway bench: --html draws its charts with matplotlib, and matplotlib is missing: "
        "in Headway's source tree run `make build EXTRAS=bench`, "
        "or `pip install '.[bench]'` in an environment of your own\n"
    )


def test_a_page_without_anything_measured_is_one() -> None:
    nothing = results(row([], None, "interrupted", threads=1, policy="stock", switch_interval=0.1))

    class Bare(Made):
        def charts(self, results: object) -> list[Chart]:
            return []

    document = Document(page.draw({}, [(Bare(), nothing)]))
    assert "[1] interrupted" in document.one("main").text

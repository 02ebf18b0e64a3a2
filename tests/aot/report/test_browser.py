"""The report in a real headless Chromium: it draws itself, clicks do what they say, and a large library stays usable.

`python tests/aot/report/install_chromium.py` installs one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbuild.aot.report.page import page as page_of
from kbuild.aot.report.sections import packed
from tests.aot.report import chromium, library
from tests.aot.report.chromium import Page
from tests.aot.report.conftest import Reported
from tests.aot.report.test_report import sections

PROGRAM = chromium.find_chromium()
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no Chromium: python tests/aot/report/install_chromium.py installs one"
)
LARGE = 1000
ROWS = "document.querySelectorAll('.sides tbody tr').length"
MULTIPLY = f"#/variant/{library.MULTIPLY_NAME}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with chromium.opened(str(PROGRAM)) as page:
        yield page


@pytest.fixture
def page(browser: Page, reported: Reported) -> Iterator[Page]:
    """The report of the small library, opened afresh; nothing may have gone wrong at the end."""
    browser.resize(1400, 900)
    browser.prefer("light")
    browser.open(reported.report)
    yield browser
    assert browser.errors == []
    assert {url.partition(":")[0] for url in browser.requests} <= {"file", "data"}


def test_the_overview_shows_the_state_at_once(page: Page) -> None:
    tiles = page.texts(".tile")
    assert any("Variants\n3" in text for text in tiles) and any("Up to date" in text for text in tiles)
    assert any("Last build" in text and "5 steps" in text for text in tiles)
    assert page.texts("#matrix tbody th") == ["scale", "multiply"]
    assert page.run("document.querySelector('#matrix select').value") == "registers"
    page.choose("#matrix select", "occupancy")
    assert "%" in page.text("#matrix tbody td a") and "metric=occupancy" in page.run("location.hash")
    assert page.colours() > 40, "something is drawn"
    page.click("#matrix tbody td a")
    page.wait("document.querySelector('main').dataset.view === 'variants'")
    assert page.text("[role=status]") == "1 of 3 variants"


def test_variants_are_filtered_and_sorted(page: Page) -> None:
    page.go("#/variants")
    names = "table.variants tbody small"
    assert len(page.texts(names)) == 3
    page.click("[data-column=registers]")
    assert page.run("document.querySelector('[aria-sort]').innerText").startswith("Registers ↓")
    values = [int(text.split()[0]) for text in page.texts("table.variants tbody td:nth-child(6)")]
    assert values == sorted(values, reverse=True) and len(set(values)) > 1
    page.click("[data-column=registers]")
    assert page.run("document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "ascending"
    page.click(".toolbar input")
    page.type("fp32 512")
    assert page.texts(names) == [library.SCALE.format("fp32").removeprefix("scale.sm_80.")]
    page.type(" nothing")
    assert page.text("table.variants tbody") == "No variant is like that."
    page.run("document.querySelector('.toolbar button').click()")
    page.wait("document.querySelectorAll('table.variants tbody small').length === 3")


def test_the_search_finds_and_opens_a_variant(page: Page) -> None:
    page.click("#find")
    page.type("multiply 64")
    assert page.texts("#found li") == [library.MULTIPLY_NAME]
    page.press("Enter")
    page.wait("document.querySelector('main').dataset.view === 'variant'")
    assert page.text("h1") == "multiply" and "Registers of a thread" in page.text("main")
    assert "Build 1 compiled it, as the first." in page.text("main")


def test_every_pass_is_shown_beside_the_one_before(page: Page, reported: Reported) -> None:
    page.go(f"{MULTIPLY}/passes")
    page.wait("document.querySelector('.passes a')")
    names = page.texts(".passes a > span:first-child")
    assert names[0] == "before the first pass" and "accelerate_matmul" in names
    page.run(f"document.querySelectorAll('.passes a')[{names.index('accelerate_matmul')}].click()")
    page.wait("document.querySelector('.sides thead')?.innerText.includes('After accelerate_matmul')")
    assert any("tt.dot" in text for text in page.texts(".sides td.removed"))
    assert any("warp_group_dot" in text for text in page.texts(".sides td.added"))
    # What the page makes of the differences is the last text of the compiler.
    page.run("[...document.querySelectorAll('.passes a')].at(-1).click()")
    page.wait("document.querySelector('.passes li:last-child [aria-current]')")
    if page.run("document.querySelector('.toolbar button').getAttribute('aria-pressed') === 'true'"):
        page.click(".toolbar button")
    folded = page.run(ROWS)
    page.click(".sides .fold button")
    assert page.run(ROWS) > folded
    page.click(".toolbar button")
    details = sections(reported.report)
    detail = details[f"detail-{details['summary']['details'].index(library.MULTIPLY_NAME)}"]
    rows = "[...document.querySelectorAll('.sides tbody tr')].map((row) => row.cells[3].textContent)"
    assert page.run(rows) == detail["code"]["ttgir"]["lines"]
    page.click(".toolbar button:last-child")
    assert "unified" in page.run("document.querySelector('.sides').className")


def test_lines_that_come_from_each_other_are_linked(page: Page) -> None:
    page.go(f"{MULTIPLY}/code")
    page.wait("document.querySelector('.pane')")
    titles = page.texts(".pane h3")
    assert [title.split("\n")[0] for title in titles][:3] == ["Source", "ttgir", "PTX"]
    dot = "[...document.querySelectorAll('.pane')][0].querySelectorAll('[data-row]')"
    page.run(f"[...{dot}].find((row) => row.textContent.includes('tl.dot(')).id = 'dot'")
    page.point("#dot")
    marked = page.contents(".pane .exact")
    assert any("warp_group_dot " in text for text in marked) and any(
        "wgmma.mma_async" in text for text in marked
    )
    page.click("#dot")
    page.point("h1")
    assert page.contents(".pane .exact") == marked, "a click keeps it"
    if len(titles) == 4:
        assert any("HGMMA" in text for text in marked)
        page.run("[...document.querySelectorAll('.pane')][3].querySelector('.exact').click()")
        page.run(
            "[...document.querySelectorAll('.pane [data-row]')].find((row) => row.textContent.includes('HGMMA')).click()"
        )
        assert any("wgmma.mma_async" in text for text in page.contents(".pane:nth-child(3) .exact"))
    page.press("Escape")
    page.run("document.querySelector('.pane .lines').focus()")
    page.press("Escape")
    assert page.contents(".pane .exact") == []
    page.press("ArrowDown")
    assert len(page.texts(".pane .pinned")) == 1


def test_layouts_say_who_holds_an_element(page: Page) -> None:
    page.go(f"{MULTIPLY}/layouts")
    page.wait("document.querySelector('canvas')?.width > 300")
    keys = page.texts(".layout li button")
    place = next(number for number, text in enumerate(keys) if "mma{" in text and text.startswith("64x64"))
    page.go(f"{MULTIPLY}/layouts/{place}")
    page.wait("document.querySelector('.layout canvas')?.width > 300")
    page.run("window.scrollTo(0, 0)")
    left, top, width, height = page.box("canvas")
    # Row 1, column 2 of an accumulator: the second lane of the second row of four.
    x, y = left + 2.5 * width / 64, top + 1.5 * height / 64
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert page.text(".says") == "[1, 2]: register 0, lane 5, warp 0"
    assert page.colours() > 30
    page.go(f"{MULTIPLY}/passes")
    page.wait("document.querySelector('.passes a')")
    page.run(
        "document.querySelectorAll('.passes a')[document.querySelectorAll('.passes a').length - 1].click()"
    )
    page.wait("document.querySelector('.sides button.tok-layout')")
    page.run("document.querySelector('.sides button.tok-layout').click()")
    page.wait("document.querySelector('dialog[open] canvas')?.width > 0")
    page.press("Escape")
    page.wait("!document.querySelector('dialog')")


def test_the_theme_follows_the_system_and_the_reader(page: Page, reported: Reported) -> None:
    theme = "document.documentElement.dataset.theme"
    assert page.run(theme) == "light"
    page.prefer("dark")
    page.open(reported.report)
    assert page.run(theme) == "dark"
    dark = page.screenshot()
    page.click("#theme")
    assert page.run(theme) == "light" and page.screenshot() != dark
    page.open(reported.report)
    assert page.run(theme) == "light", "it is remembered"
    page.run("localStorage.clear()")


def test_narrow_screens_are_not_wider_than_they_are(page: Page) -> None:
    page.resize(390, 844)
    for view in (
        "#/",
        "#/variants",
        "#/timeline",
        "#/size",
        MULTIPLY,
        f"{MULTIPLY}/passes",
        f"{MULTIPLY}/code",
        f"{MULTIPLY}/layouts",
    ):
        page.go(view)
        page.wait("!document.querySelector('.tabs') || document.querySelector('.tabs + div').children.length")
        assert page.run("document.documentElement.scrollWidth") <= 390, view


def test_a_thousand_variants(browser: Page, reported: Reported, tmp_path: Path) -> None:
    """Measured by what the page costs the processor, not by the clock."""
    large = library.multiplied(reported.summary, LARGE)
    found = sections(reported.report)
    detail = packed(found["detail-0"])
    file = tmp_path / "large.html"
    file.write_text(page_of(large, [(variant["name"], detail) for variant in large["variants"]]))
    browser.resize(1400, 900)
    browser.prefer("light")
    browser.open(file)
    assert any("Variants\n1,000" in text for text in browser.texts(".tile"))
    assert "20\nvariants failed in the last build" in browser.text(".alerts")
    browser.go("#/variants")
    rows = "document.querySelectorAll('table.variants tbody tr').length"
    assert browser.run(rows) < 300, "it draws what is seen"
    browser.run("(() => { const s = document.querySelector('.tall'); s.scrollTop = s.scrollHeight; })()")
    browser.wait(f"{rows} >= 300")
    for column in ("registers", "spills", "occupancy", "state", "name"):
        browser.click(f"[data-column={column}]")
    browser.click(".toolbar input")
    for letter in "kernel_7 sm_90":
        browser.type(letter)
    assert browser.text("[role=status]").endswith("of 1,000 variants") and browser.run(rows) < 100
    browser.go("#/timeline")
    browser.wait("document.querySelectorAll('.gantt rect.step').length > 500")
    for number in range(0, LARGE, 200):
        browser.go(f"#/variant/{large['variants'][number]['name']}/passes")
        browser.wait("document.querySelector('.passes a')")
    cost = browser.metrics()
    assert browser.errors == []
    assert cost["TaskDuration"] < 12 and cost["JSHeapUsedSize"] < 200e6, cost

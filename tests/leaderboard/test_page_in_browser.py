"""The page as a browser renders it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.boards import EVERYTHING, METHODS
from support.chromium import open_page

from fleet_tools.leaderboard.board import Rejection
from fleet_tools.leaderboard.page import as_html

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow  # starts a browser

WIDE = replace(
    EVERYTHING,
    methods=tuple(
        replace(each, title="W" * 80, letters="abcdefghijkl", description="w " * 500)
        for each in METHODS
    ),
    rejections=tuple(Rejection("w" * 200, "W" * 300) for _ in range(50)),
)
"""Twelve methods with names as long as they may be, and many rejections."""


Show = Callable[[str, int, str], Any]
"""What shows a board, and returns its page."""


@pytest.fixture(name="show", scope="module")
def _show(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Show]:
    """Shows one of the boards in a window of a width, at a place of its page."""
    folder = tmp_path_factory.mktemp("page")
    for name, board in {"usual": EVERYTHING, "wide": WIDE}.items():
        (folder / f"{name}.html").write_text(as_html(board))
    with open_page("about:blank") as page:

        def show(name: str, width: int, place: str = "") -> "Page":
            page.set_viewport_size({"width": width, "height": 900})
            page.goto("about:blank")  # so that details are closed again
            page.goto((folder / f"{name}.html").as_uri() + place)
            return page

        yield show


def shown(page: "Page", row: int) -> list[str]:
    """Returns the texts of the visible cells of a row of the table of methods."""
    cells = page.locator(".methods > * > tr").nth(row).locator("> *").all()
    return [each.inner_text() for each in cells if each.is_visible()]


@pytest.mark.parametrize("name", ["usual", "wide"])
@pytest.mark.parametrize("width", [1440, 1280, 820, 390])
def test_nothing_is_wider_than_the_window_and_twelve_methods_are_at_most_3000_high(
    show, name, width
):
    page = show(name, width)
    wider = "[document.documentElement, ...document.querySelectorAll('.scroll')]"
    assert page.evaluate(f"{wider}.filter(e => e.scrollWidth > e.clientWidth).length") == 0
    if width == 1440:
        assert page.evaluate("document.documentElement.scrollHeight") <= 3000
        assert len(shown(page, 0)) == 11
    if name == "usual" and width == 1440:
        box = page.locator(".methods").first.bounding_box()
        assert box and box["y"] + box["height"] <= 900  # one screen


def test_a_phone_shows_method_and_score_and_the_rest_at_a_click(show):
    page = show("usual", 390)
    assert shown(page, 0) == ["Rank", "Method", "Success"]
    _, name, score = shown(page, 3)
    assert (name, score.split()[0]) == ("keypoints_elman_each", "84%")
    assert not page.get_by_text("screwdriver").first.is_visible()
    page.locator("summary").first.click()
    assert page.get_by_text("screwdriver").first.is_visible()


def test_the_name_of_a_method_and_its_address_open_its_details(show):
    page = show("usual", 1440)
    page.get_by_text("detector_elman_all", exact=True).first.click()
    assert page.locator("details[open]").count() == 1
    assert page.locator("details[open]").get_by_text("detector_elman_all").first.is_visible()
    assert show("usual", 1440, "#method-3").locator("details[open] #method-3").is_visible()


def test_light_and_dark_have_readable_colors_and_paper_is_light(show):
    page = show("usual", 1440)
    brightness = "getComputedStyle(document.body).%s.match(/\\d+/g).map(Number)[0]"
    for scheme, media, dark in (
        ("light", "screen", False), ("dark", "screen", True), ("dark", "print", False),
    ):  # fmt: skip
        page.emulate_media(color_scheme=scheme, media=media)
        paper, ink = (page.evaluate(brightness % name) for name in ("backgroundColor", "color"))
        assert (paper < 60, ink > 200) == (dark, dark)
    page.emulate_media(color_scheme="light", media="screen")

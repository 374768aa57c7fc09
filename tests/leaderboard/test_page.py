"""The leaderboard's page and its Markdown: their content, and what strangers cannot put there."""

import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.boards import CLIP, EVERYTHING, LEVELS, METHODS, a_method

from fleet_tools.evaluation.level_cost import PairedDifference
from fleet_tools.leaderboard.board import Board, LevelScore, Rejection
from fleet_tools.leaderboard.page import as_html, as_markdown
from fleet_tools.leaderboard.tables import NONE, method_cells, percent, points
from fleet_tools.leaderboard.texts import NOTHING, as_text, summary

Attributes = dict[str, str | None]


class Reader(HTMLParser):
    """Reads tags, text, and the cells of tables; fails if a tag is not closed."""

    EMPTY = ("meta", "wbr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, Attributes]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open
        self.rows = [[cell.strip() for cell in row] for row in self.rows]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data


def markdown_rows(text: str) -> list[list[str]]:
    """Returns the cells of all rows of all tables, as a reader sees them."""
    rows = []
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            rows.append([re.sub(r"\\(.)|\*", r"\1", cell).strip() for cell in cells])
    return rows


@pytest.fixture(name="page", scope="module")
def _page() -> Reader:
    return Reader(as_html(EVERYTHING))


# --- Content --------------------------------------------------------------------------------


def test_the_same_values_give_the_same_bytes():
    again = replace(EVERYTHING, methods=tuple(replace(each) for each in EVERYTHING.methods))
    assert as_html(again) == as_html(EVERYTHING)
    assert as_markdown(again) == as_markdown(EVERYTHING)


def test_page_and_markdown_have_the_same_cells(page):
    heading, *rows = markdown_rows(as_markdown(EVERYTHING))
    assert heading == [
        *("Rank", "Method", "Reads", "Success", "Letters"),
        *(name.capitalize() for name, _ in LEVELS),
    ]
    assert heading in page.rows
    for method, cells in zip(METHODS, rows, strict=False):
        assert cells in page.rows
        assert cells[0] == str(method.rank or NONE) and method.name in cells[1]
    (row,) = (row for row in rows if row[0] == "told_only" and len(row) == len(LEVELS) + 3)
    assert row in page.rows  # without a rank


def test_a_level_says_what_it_costs_against_the_same_scenes():
    cost = PairedDifference(0.14, 0.09, 0.19, 240)
    method = replace(METHODS[0], levels={"pushes": LevelScore(0.71, 0.65, 0.77, cost)})
    cells = dict(zip(dict(LEVELS), method_cells(method, EVERYTHING, ranked=True)[5:], strict=True))
    assert (cells["pushes"].text, cells["pushes"].note) == ("71%", "(-14)")
    assert "costly" in cells["pushes"].kind and cells["cameras"].text == NONE
    board = Board(LEVELS, (method,))
    assert "**71% \\(-14\\)**" in as_markdown(board)
    rows = Reader(as_html(board)).rows
    assert ["pushes", "71% (65% to 77%)", "-14 (-19 to -9, 240 pairs)"] in rows


@given(st.floats(0, 1))
def test_only_never_and_always_are_0_and_100_percent(rate):
    assert (percent(rate) in ("0%", "100%")) == (rate in (0, 1))
    assert abs(float(percent(rate)[:-1]) - 100 * rate) <= 0.5


@given(st.floats(-1, 1))
def test_points_have_the_sign_of_the_difference(difference):
    text = points(difference)
    assert text == "0" or text[0] == ("+" if difference > 0 else "-")
    assert abs(int(text) - 100 * difference) <= 0.5


def test_a_click_opens_tasks_splits_failures_video_and_provenance(page):
    assert ["Task", "Success"] in page.rows and ["Split", "Success"] in page.rows
    assert ["Fails at", "Episodes"] in page.rows and ["reach", "31"] in page.rows
    names = [tag for tag, _ in page.tags]
    assert names.count("details") == names.count("summary") == len(EVERYTHING.methods)
    (video,) = (a for tag, a in page.tags if tag == "video")
    assert base64.b64decode((video["src"] or "").partition(",")[2]) == CLIP.video
    assert "controls" in video and "autoplay" not in video
    assert "checkpoints/expert.safetensors" in page.text
    opened = {a["id"] for _, a in page.tags if a.get("id")}
    assert {a["href"] for tag, a in page.tags if tag == "a"} == {f"#{each}" for each in opened}
    assert len(opened) == len(EVERYTHING.methods)


def test_seed_same_actions_and_rejections_are_told(page):
    for text in (page.text, as_markdown(EVERYTHING).replace("\\", "")):
        assert "8077234611" in text and "same actions as pointnet_gru_all" in text
        assert "bad/one" in text and "its episodes say 40%" in text
    assert "not published yet" in as_html(replace(EVERYTHING, seed_published=None))


def test_a_board_without_results_says_so():
    board = Board(LEVELS)
    for text in (as_html(board), as_markdown(board), as_text(board, None)):
        assert NOTHING in text
    Reader(as_html(board))
    assert markdown_rows(as_markdown(board)) == []
    unmeasured = Board(LEVELS, (a_method("new", "images", None, failures={}),))
    _, row = markdown_rows(as_markdown(unmeasured))
    assert row == [NONE, "new", "images", NONE, "", *[NONE] * len(LEVELS)]


def test_the_terminal_and_json_have_every_method(tmp_path):
    told = json.loads(json.dumps(summary(EVERYTHING, tmp_path / "page.html")))
    assert [each["name"] for each in told["methods"]] == [each.name for each in EVERYTHING.methods]
    lines = as_text(EVERYTHING, tmp_path / "page.html").splitlines()
    assert lines[0].strip().startswith("1  expert: privileged, 99% (93% to 100%), letters a")
    assert "long 74% (-25)" in lines[0] and "page.md" in lines[-1]


# --- What it must not contain ---------------------------------------------------------------


def test_the_page_loads_nothing_and_runs_nothing(page):
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe", "img", "object", "form")
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "action", "poster", "srcset"):
                assert re.match(r"#|data:video/mp4;base64,", value or "")
    (policy,) = (a["content"] for _, a in page.tags if a.get("http-equiv"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; media-src data:"
    assert "url(" not in as_html(EVERYTHING) and "@import" not in as_html(EVERYTHING)


def test_tables_are_accessible(page):
    headers = [a for tag, a in page.tags if tag == "th"]
    assert headers and all(a.get("scope") in ("row", "col") for a in headers)
    regions = [a for _, a in page.tags if a.get("role") == "region"]
    assert len(regions) == 2 and all(a.get("aria-label") for a in regions)


STRANGE = st.text(min_size=1, max_size=64) | st.sampled_from(
    [
        "<script>x</script>", "a|b`c`", '"><b', "[x](javascript:x)", "a\nb", "&lt;", "</style>",
        "{{ 7*7 }}{% raw %}", "' onmouseover='x", "<!--", "]]>", "\u202eexe", "**b**", "# h",
    ]
)  # fmt: skip


def strange(text: str) -> Board:
    """Returns a board that has a text wherever a stranger can put one."""
    method = replace(
        METHODS[0],
        name=text,
        title=text,
        description=text,
        track=text,
        letters=text,
        failures={text: 1},
        same_actions_as=(text,),
        provenance={text: text},
        clip=replace(CLIP, outcomes={text: text}),
    )
    rejections = (Rejection(text, text),)
    return Board(LEVELS, (method, replace(method, self_reported=True)), rejections, text)


PLAIN = Reader(as_html(strange("x")))


@given(STRANGE)
def test_a_text_of_a_stranger_is_never_more_than_text(text):
    page = Reader(as_html(strange(text)))
    assert [(tag, [*a]) for tag, a in page.tags if tag != "wbr"] == [
        (tag, [*a]) for tag, a in PLAIN.tags if tag != "wbr"
    ]
    assert text.replace("\r", "\n") in page.text.replace("\r", "\n") or "\0" in text
    assert "49" not in re.sub(re.escape(text), "", page.text)  # the text is no template
    markdown = as_markdown(replace(strange(text), rejections=()))  # there they are code
    assert not re.search(r"<[a-zA-Z/!]", markdown) and not re.search(r"(?<!\\)\]\(", markdown)
    shape = [len(row) for row in markdown_rows(as_markdown(strange("x")))]
    assert [len(row) for row in markdown_rows(markdown)] == shape

"""The page: its content, and what it must not contain."""

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.boards import EVERYTHING, SUBMISSIONS, board
from support.submitted import (
    overall,
    random_evaluation,
    renamed,
    submission,
)

from fleet_tools.leaderboard.board import HEADINGS, Board
from fleet_tools.leaderboard.page import as_html, as_markdown
from fleet_tools.leaderboard.result_folders import Rejection
from fleet_tools.leaderboard.texts import as_text, summary

Attributes = dict[str, str | None]


class Reader(HTMLParser):
    """Reads tags, text, and the cells of tables; fails if a tag is not closed."""

    EMPTY = ("meta", "br", "line", "circle", "wbr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, Attributes]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data


@pytest.fixture(name="page", scope="module")
def _page() -> Reader:
    return Reader(as_html(board(**EVERYTHING)))


def test_the_same_results_give_the_same_bytes():
    again = board(SUBMISSIONS[::-1], **EVERYTHING)
    assert as_html(again) == as_html(board(**EVERYTHING))
    assert as_markdown(again) == as_markdown(board(**EVERYTHING))


def test_every_method_has_a_row_with_its_rank_and_numbers(page):
    _, names, *rows = page.rows
    assert names == [
        "Rank", "Method", "Total", "Letters", "Hammer", "Knife", "Train", "Unseen tools",
        "Policies", "Success once", "Errors", "Verified",
    ]  # fmt: skip
    standings = board().standings
    for standing, cells in zip(standings, rows, strict=False):
        assert cells[1].startswith(standing.name)
        if standing.overall is None:
            assert cells[0] == ""
        else:
            total = standing.overall.total
            assert cells[0] == str(standing.overall.rank)
            assert cells[2] == f"{total.rate:.1%}{100 * total.low:.1f} to {100 * total.high:.1f}"
    assert [standing.name for standing in standings] == [
        "expert", "only_knives", "trained", "zero", "no_hammer",
    ]  # fmt: skip
    assert rows[0][8] == "one for all tools" and rows[4][8] == "one for knife"
    assert rows[0][11] == "4 of 4"
    assert rows[4][2:5] == ["no result", "", "no result"]
    assert "3 training runs" in rows[2][1]


def test_markdown_has_the_content_of_the_page(page):
    text = as_markdown(board(**EVERYTHING)).replace("\\", "")
    _, names, *rows = page.rows
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert [name.capitalize() for name in lines[0]] == names
    for cells, row in zip(lines[1:], rows[: len(board().standings)], strict=False):
        assert cells[0] == row[0] or row[0] == ""
        for rate in re.findall(r"\d+\.\d%", row[2]):
            assert rate in " ".join(cells)
    for expected in ("bad/one", "scores", "4 of 4", "How to submit", "0123456789abcdef"):
        assert expected in text and expected in page.text


def test_ranks_are_within_tracks_and_of_what_is_verified():
    planner = renamed(random_evaluation(1.0, name="planner"), track="privileged")
    shown = board(
        [
            submission(random_evaluation(0.9, name="good")),
            submission(planner),
            submission(random_evaluation(1.0, name="unknown"), same_outcome=None),
            # A training run that is not verified takes the rank of the whole method.
            submission(random_evaluation(0.8, name="part", training_seed=0)),
            submission(random_evaluation(0.8, name="part", training_seed=1), same_outcome=None),
        ]
    )
    found = {
        ranking.kind: [(each.name, overall(each).rank) for each in ranking.standings]
        for ranking in shown.rankings
    }
    assert found == {
        "keypoints": [("good", 1)],
        "privileged": [("planner", 1)],
        "unverified": [("unknown", None), ("part", None)],
    }
    for text in (as_html(shown), as_markdown(shown)):
        places = [text.index(HEADINGS[each.kind]) for each in shown.rankings]
        assert places == sorted(places)


def test_pages_show_results_with_other_cameras_apart():
    noisy = random_evaluation(
        0.4, name="expert", obs_mode="point_cloud", cloud_source="rays", sensors="active_stereo"
    )
    shown = board([*SUBMISSIONS, submission(noisy, "expert/noisy")])
    page = as_html(shown)
    assert 'id="clouds-active_stereo-0"' in page
    numbers = re.findall(r'<article id="(method-\d+)"', page)
    assert len(numbers) == len(set(numbers)) == len(board().standings) + 1
    for text in (page, as_markdown(shown), as_text(shown, None)):
        plain = text.replace("\\", "").replace("<wbr>", "")
        assert "Point clouds, active stereo sensors" in plain
        assert "expert (active_stereo)" in plain
    methods = summary(shown, None)["methods"]
    assert [(e["sensors"], e["rank"]) for e in methods if e["name"] == "expert"] == [
        ("ideal", 1),
        ("active_stereo", 1),
    ]


def test_a_preview_has_no_rank_and_is_counted_nowhere_else(page):
    partial = replace(SUBMISSIONS[3], folder="theirs", missing="only 2 of 3 scenes of <train>")
    apart = board(**EVERYTHING)
    both = board(**EVERYTHING, previews=[partial])
    shown = Reader(as_html(both))
    (row,) = (row for row in shown.rows if row[0] == "theirs")
    assert row == ["theirs", "no_hammer", "", "5 of 5 (56.6% to 100.0%)", partial.missing]
    assert "Preview" in shown.text and "Preview" not in page.text
    section = re.compile(r'<section><h2 id="preview">.*?</section>\n', re.DOTALL)
    assert section.sub("", as_html(both)) == as_html(apart)
    text = as_markdown(both).replace("\\", "")
    assert "| theirs | no_hammer |  | 5 of 5 (56.6% to 100.0%) | only 2 of 3 scenes" in text
    section = re.compile(r"\n## Preview\n.*?(?=\n## )", re.DOTALL)
    assert section.sub("", as_markdown(both)) == as_markdown(apart)


def test_methods_say_what_they_are():
    theirs = replace(SUBMISSIONS[0], description="A *very* <b>good</b> method")
    zero = renamed(SUBMISSIONS[1].evaluation, kind="built_in", source="zero")
    shown = board([theirs, submission(zero)])
    page = Reader(as_html(shown))
    text = as_markdown(shown).replace("\\", "").replace("&lt;", "<").replace("&gt;", ">")
    for words in (page.text, text):
        assert words.count("A *very* <b>good</b> method") == 2  # its row and its section
        assert words.count("Zero actions: the arm stays") == 2


def test_a_page_of_previews_alone_has_no_empty_sections():
    runs = [renamed(SUBMISSIONS[3].evaluation, training_seed=k) for k in range(2)]
    previews = [submission(each, f"theirs/{k}") for k, each in enumerate(runs)]
    shown = board([], previews=[replace(each, missing="most") for each in previews])
    page = Reader(as_html(shown))
    assert [heading for heading in ("Methods", "Plots", "Details") if heading in page.text] == []
    rows = [row for row in page.rows if row[0].startswith("theirs")]
    assert [row[1] for row in rows] == [f"no_hammer, training seed {k}" for k in range(2)]
    assert "How to read it" not in as_markdown(shown)
    assert "Preview: theirs/0 (no_hammer): knife" in as_text(shown, None)


def test_how_to_submit_is_on_the_packages_own_page_only(page):
    assert sum(tag == "pre" for tag, _ in page.tags) == 3
    for command in ("fleet_tools.evaluate", "fleet_tools.leaderboard", "git add"):
        assert command in page.text
    own = board(takes_submissions=False)
    assert "How to submit" not in as_html(own) + as_markdown(own)


def test_the_page_loads_nothing(page):
    allowed = re.compile(r"#|data:video/mp4;base64,")
    for _, attributes in page.tags:
        for name in ("src", "href", "action", "poster", "srcset"):
            assert name not in attributes or allowed.match(attributes[name] or "")
    (policy,) = (a["content"] for _, a in page.tags if a.get("http-equiv"))
    assert policy is not None and "default-src 'none'" in policy
    assert "url(" not in as_html(board()) and "@import" not in as_html(board())


def test_clips_are_in_the_page_and_tables_and_plots_are_accessible(page):
    (video,) = (a for tag, a in page.tags if tag == "video")
    assert base64.b64decode((video["src"] or "").partition(",")[2]) == b"\0video"
    assert "controls" in video and "autoplay" not in video
    headers = [a for tag, a in page.tags if tag == "th"]
    assert all(a.get("scope") in ("row", "col", "colgroup") for a in headers)
    assert [a["aria-sort"] for a in headers if "aria-sort" in a] == ["ascending"]
    plots = [a for tag, a in page.tags if tag == "svg"]
    assert len(plots) == 5
    assert all(a["role"] == "img" and a["aria-label"] for a in plots)


NAMES = st.text(min_size=1, max_size=40) | st.sampled_from(
    ["<script>x</script>", "a|b`c`", '"><b', "[x](javascript:x)", "a\nb", "&lt;"]
)


def named(name: str) -> Board:
    """Returns a board that has a name wherever a stranger can put one."""
    renames = [submission(renamed(SUBMISSIONS[0].evaluation, name), "f")]
    return board(renames, rejections=[Rejection(name, "damaged", name)])


PLAIN = Reader(as_html(named("x")))


@settings(max_examples=30)
@given(NAMES)
def test_a_name_is_never_more_than_text(name):
    shown = named(name)
    page, same = Reader(as_html(shown)), PLAIN
    assert [tag for tag, _ in page.tags if tag != "wbr"] == [tag for tag, _ in same.tags]
    assert name.replace("\r", "\n") in page.text.replace("\r", "\n") or "\0" in name
    text = as_markdown(replace(shown, rejections=()))  # there they are code
    assert "<script" not in text
    assert text.count("](") == 1 and "](../docs/benchmark/submitting.md)" in text
    (row,) = (line for line in text.splitlines() if line.startswith("| 1 |"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 13

"""The page: what it says, that it says nothing else, and what a browser makes of it."""

import base64
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from submitted import SMALL, drawn, made_up, named, submission

from fleet_tools.envs.outcomes import SUCCESS, TIME_LIMIT
from fleet_tools.leaderboard.board import Board
from fleet_tools.leaderboard.clips import Clip
from fleet_tools.leaderboard.markdown import as_markdown
from fleet_tools.leaderboard.page import as_html
from fleet_tools.leaderboard.standings import standings
from fleet_tools.leaderboard.submissions import Finding
from fleet_tools.leaderboard.verification import Verification

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="this system has no Chromium")

SUBMISSIONS = [
    submission(made_up(lambda trial: SUCCESS, name="expert")),
    submission(made_up(lambda trial: TIME_LIMIT, name="zero")),
    submission(made_up(lambda t: SUCCESS if t.task == "knife" else TIME_LIMIT, name="only_knives")),
    submission(made_up(lambda trial: SUCCESS, name="no_hammer", tasks=["knife"])),
    *(submission(drawn(0.5, seed=k, name="trained", training_seed=k)) for k in range(3)),
]


def board(submissions=SUBMISSIONS, **more):
    return Board(SMALL, "0123456789abcdef", standings(submissions, SMALL), **more)


EVERYTHING = {
    "findings": [Finding("bad/one", "numbers", "it says <b>100%</b>")],
    "verifications": {"expert/None": Verification("expert/None", 4, ("steps: 3, 4",), {})},
    "clips": {"expert": Clip(b"\0video", 384, 192, {"hammer": "success"})},
}


class Reader(HTMLParser):
    """Reads tags, text, and the cells of the first table; complains of what is not closed."""

    EMPTY = ("meta", "br", "line", "circle", "wbr")

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.rows, self._open = [], "", [], []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.EMPTY:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data


@pytest.fixture(name="page", scope="module")
def _page():
    return Reader(as_html(board(**EVERYTHING)))


def test_the_same_results_give_the_same_bytes():
    again = board(SUBMISSIONS[::-1], **EVERYTHING)
    assert as_html(again) == as_html(board(**EVERYTHING))
    assert as_markdown(again) == as_markdown(board(**EVERYTHING))


def test_every_method_has_a_row_with_its_rank_and_numbers(page):
    _, heads, *rows = page.rows
    assert heads == [
        "Rank", "Method", "Total", "Hammer", "Knife", "Train", "Unseen tools", "At any time",
        "Errors", "Verified",
    ]  # fmt: skip
    ranked = board().rows
    for row, cells in zip(ranked, rows, strict=False):
        assert cells[0] == ("" if row.rank is None else str(row.rank))
        assert cells[1].startswith(row.name)
        if row.total:
            low, high = 100 * row.total.low, 100 * row.total.high
            assert cells[2] == f"{row.total.rate:.1%}{low:.1f} to {high:.1f}"
    assert [row.name for row in ranked] == [
        "expert", "only_knives", "trained", "zero", "no_hammer",
    ]  # fmt: skip
    assert rows[0][9] == "3 of 4"
    assert rows[4][2:4] == ["not given", "not given"]
    assert "3 trainings" in rows[2][1]


def test_markdown_says_what_the_page_says(page):
    text = as_markdown(board(**EVERYTHING)).replace("\\", "")
    _, heads, *rows = page.rows
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert [head.capitalize() for head in lines[0]] == heads
    for cells, row in zip(lines[1:], rows[: len(board().rows)], strict=False):
        assert cells[0] == row[0] or row[0] == ""
        for rate in re.findall(r"\d+\.\d%", row[2]):
            assert rate in " ".join(cells)
    for said in ("bad/one", "numbers", "3 of 4", "How to submit", "0123456789abcdef"):
        assert said in text and said in page.text


def test_how_to_submit_is_three_commands(page):
    assert sum(tag == "pre" for tag, _ in page.tags) == 3
    for command in ("fleet_tools.evaluate", "fleet_tools.leaderboard", "git add"):
        assert command in page.text


def test_the_page_loads_nothing(page):
    allowed = re.compile(r"#|data:video/mp4;base64,")
    for _, attributes in page.tags:
        for name in ("src", "href", "action", "poster", "srcset"):
            assert name not in attributes or allowed.match(attributes[name])
    (policy,) = (a["content"] for tag, a in page.tags if a.get("http-equiv"))
    assert "default-src 'none'" in policy
    assert "url(" not in as_html(board()) and "@import" not in as_html(board())


def test_a_clip_is_in_the_page(page):
    (video,) = (a for tag, a in page.tags if tag == "video")
    assert base64.b64decode(video["src"].partition(",")[2]) == b"\0video"
    assert "controls" in video and "autoplay" not in video


def test_tables_and_plots_can_be_heard(page):
    heads = [a for tag, a in page.tags if tag == "th"]
    assert all(a.get("scope") in ("row", "col", "colgroup") for a in heads)
    assert [a["aria-sort"] for a in heads if "aria-sort" in a] == ["ascending"]
    plots = [a for tag, a in page.tags if tag == "svg"]
    assert len(plots) == 5
    assert all(a["role"] == "img" and a["aria-label"] for a in plots)


NAMES = st.text(min_size=1, max_size=40) | st.sampled_from(
    ["<script>x</script>", "a|b`c`", '"><b', "[x](javascript:x)", "a\nb", "&lt;"]
)


@settings(max_examples=30)
@given(NAMES)
def test_a_name_is_never_more_than_text(name):
    evaluation = SUBMISSIONS[0].evaluation
    page, same = (
        Reader(
            as_html(
                board(
                    [submission(named(evaluation, word), "f")],
                    findings=[Finding(word, "damaged", word)],
                )
            )
        )
        for word in (name, "x")
    )
    assert [tag for tag, _ in page.tags if tag != "wbr"] == [tag for tag, _ in same.tags]
    assert name.replace("\r", "\n") in page.text.replace("\r", "\n") or "\0" in name
    text = as_markdown(board([submission(named(evaluation, name), "f")]))
    assert "<script" not in text and "](" not in text
    (row,) = (line for line in text.splitlines() if line.startswith("| 1 |"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 10


# --- In a browser ---------------------------------------------------------------------------


def chromium(tmp_path, *arguments):
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        f"--user-data-dir={tmp_path / 'profile'}", *map(str, arguments),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def _names_after(tmp_path, *clicks):
    """The first column's order after heads are pressed, and how the heads say it is sorted."""
    press = "".join(f"document.querySelectorAll('th button')[{k}].click();" for k in clicks)
    text = as_html(board()).replace("</body>", f"<script>{press}</script></body>")
    (tmp_path / "page.html").write_text(text)
    dumped = chromium(tmp_path, "--dump-dom", (tmp_path / "page.html").as_uri())
    reader = Reader(dumped)
    heads = [(a["aria-sort"], k) for k, a in enumerate(_heads(reader)) if "aria-sort" in a]
    names = [name for tag, a in reader.tags if tag == "th" and (name := a.get("data-value"))]
    return names, heads


def _heads(reader):
    return [a for tag, a in reader.tags if tag == "th" and a["scope"] == "col"][:9]


@needs_chromium
def test_a_press_sorts_and_another_one_turns_it_round(tmp_path):
    rows = {row.name: row for row in board().rows}
    order, heads = _names_after(tmp_path, 4)
    rates = [rows[name].tasks["knife"].rate for name in order]
    assert rates == sorted(rates, reverse=True)
    assert heads == [("descending", 4)]
    order, heads = _names_after(tmp_path, 4, 2, 2)
    rates = [rows[name].total.rate for name in order[:-1]]
    assert rates == sorted(rates)
    assert order[-1] == "no_hammer"  # which has no total, either way round
    assert heads == [("ascending", 2)]
    order, heads = _names_after(tmp_path, 1)
    assert order == sorted(order) and heads == [("ascending", 1)]


@needs_chromium
@pytest.mark.parametrize(("scheme", "dark"), [(0, True), (1, False)])
def test_it_is_drawn_in_light_and_in_dark(tmp_path, scheme, dark):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "page.html").write_text(as_html(board(**EVERYTHING)))
    picture = tmp_path / "page.png"
    chromium(
        tmp_path,
        "--window-size=1400,1000",
        f"--screenshot={picture}",
        f"--blink-settings=preferredColorScheme={scheme}",
        (tmp_path / "page.html").as_uri(),
    )
    with image.open(picture) as opened:
        gray = opened.convert("L")
        colors = opened.convert("RGB").getcolors(2**24)
    assert gray.size == (1400, 1000)
    assert (gray.getpixel((2, 2)) < 60) == dark
    assert len(colors) > 50  # letters, bars and dots


@needs_chromium
def test_on_a_phone_only_tables_are_wider_than_the_screen(tmp_path):
    (tmp_path / "page.html").write_text(as_html(board(**EVERYTHING)))
    measure = (
        "<iframe id=f src=page.html style='width:390px;height:800px;border:0'></iframe><p id=p></p>"
        "<script>f.onload=()=>p.textContent='wide '+f.contentDocument.documentElement.scrollWidth"
        "</script>"
    )
    (tmp_path / "phone.html").write_text(measure)
    dumped = chromium(
        tmp_path,
        "--allow-file-access-from-files",
        "--dump-dom",
        (tmp_path / "phone.html").as_uri(),
    )
    assert "wide 390<" in dumped

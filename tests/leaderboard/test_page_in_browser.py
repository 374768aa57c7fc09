"""The page as a browser renders it."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.boards import DIGEST, EVERYTHING, board
from support.submitted import (
    SMALL,
    evaluation_with,
    overall,
    random_evaluation,
    submission,
)

from fleet_tools.envs.outcomes import POLICY_ERROR, SUCCESS
from fleet_tools.leaderboard.board import Board, RankedLevel, make_rankings
from fleet_tools.leaderboard.page import as_html
from fleet_tools.leaderboard.tables import ranking_table

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="this system has no Chromium")


def chromium(tmp_path: Path, *arguments: object) -> str:
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        f"--user-data-dir={tmp_path / 'profile'}", *map(str, arguments),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def measured(tmp_path: Path, page: str, width: int, expression: str) -> str:
    """Returns the value of an expression of `d`, the page's document in a window of a width."""
    (tmp_path / "page.html").write_text(page)
    (tmp_path / "window.html").write_text(
        f"<iframe id=f src=page.html style='width:{width}px;height:800px;border:0'></iframe>"
        "<p id=p></p><script>f.onload=()=>{const d=f.contentDocument;"
        f"p.textContent='measured '+({expression})}}</script>"
    )
    options = ["--allow-file-access-from-files", "--dump-dom"]
    dumped = chromium(tmp_path, *options, (tmp_path / "window.html").as_uri())
    (value,) = re.findall(r">measured ([^<]*)<", dumped)
    return value


CLICK = """(() => {
    d.querySelectorAll('th button')[%d].click();
    const heads = [...d.querySelectorAll('th[scope=col]')].slice(0, 9);
    return [...d.querySelectorAll('tbody th.method')].slice(0, 5).map(e => e.dataset.value)
        .concat(heads.map((e, k) => [e.getAttribute('aria-sort'), k]).filter(e => e[0]).flat());
})()"""


@needs_chromium
def test_a_click_sorts_and_a_second_one_reverses_the_order_and_a_phone_shows_it(tmp_path):
    clicks = ",".join(CLICK % column for column in (5, 2, 2, 1))
    expression = f"JSON.stringify([d.documentElement.scrollWidth,{clicks}])"
    page = as_html(board(**EVERYTHING))
    width, knives, _, totals, names = json.loads(measured(tmp_path, page, 390, expression))
    assert width == 390  # only tables are wider than the screen
    standings = {standing.name: standing for standing in board().standings}
    *order, direction, column = knives
    rates = [standings[name].tasks["knife"].rate or 0.0 for name in order]
    assert (rates, direction, column) == (sorted(rates, reverse=True), "descending", 5)
    *order, last, direction, column = totals
    rates = [overall(standings[name]).total.rate or 0.0 for name in order]
    assert (rates, direction, column) == (sorted(rates), "ascending", 2)
    assert last == "no_hammer"  # without a total, last in either order
    assert names == [*sorted(standings), "ascending", 1]


@pytest.mark.slow  # starts browsers
@needs_chromium
@pytest.mark.parametrize(("scheme", "dark"), [(0, True), (1, False)])
def test_it_is_rendered_in_light_and_in_dark(tmp_path, scheme, dark):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "page.html").write_text(as_html(board(**EVERYTHING)))
    screenshot = tmp_path / "page.png"
    options = ["--window-size=1400,1000", f"--blink-settings=preferredColorScheme={scheme}"]
    given = (tmp_path / "page.html").as_uri()
    chromium(tmp_path, *options, f"--screenshot={screenshot}", given)
    with image.open(screenshot) as opened:
        gray = opened.convert("L")
        colors = opened.convert("RGB").getcolors(2**24)
    assert gray.size == (1400, 1000)
    assert (gray.getpixel((2, 2)) < 60) == dark
    assert len(colors) > 50  # letters, bars and dots


TOOL_USE = SMALL.model_copy(
    update={
        "tasks": ("hammer", "knife", "spatula", "wrench"),
        "splits": {
            name: SMALL.splits["unseen_tools"].model_copy(update={"first_seed": 2**52 + 100 * k})
            for k, name in enumerate(["train", "unseen_pairs", "unseen_tools", "unseen_objects"])
        },
    }
)
"""A protocol with as many columns as the package's own."""


@pytest.mark.slow  # starts a browser
@needs_chromium
def test_all_columns_are_seen_at_a_width_of_1280(tmp_path):
    submissions = [
        submission(evaluation_with(lambda trial: SUCCESS, "bc_pointnet_elman", TOOL_USE)),
        *(
            submission(random_evaluation(0.5, k, name="m", protocol=TOOL_USE, training_seed=k))
            for k in range(3)
        ),
        submission(evaluation_with(lambda trial: POLICY_ERROR, "raising", TOOL_USE)),
    ]
    (ranking,) = make_rankings(submissions, [TOOL_USE])
    shown = Board([RankedLevel(TOOL_USE, DIGEST)], [ranking])
    assert len(ranking_table(ranking, shown).columns) == 16
    page = as_html(shown)
    widths = "(e => e.scrollWidth+' '+e.clientWidth)(d.querySelector('.scroll'))"
    scroll_bar = 15
    needed, given_width = map(int, measured(tmp_path, page, 1280 - scroll_bar, widths).split())
    assert needed <= given_width

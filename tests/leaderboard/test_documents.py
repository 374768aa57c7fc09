"""The pages about the leaderboard say what the code does."""

import re
from typing import get_args

from support.processes import ROOT

from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.leaderboard.checks import ProblemKind
from fleet_tools.leaderboard.wording import SUBMITTING_PAGE

PAGES = ROOT / "docs" / "benchmark"


def test_every_kind_of_problem_is_documented():
    text = (PAGES / "leaderboard.md").read_text()
    table = text.partition("| kind | problem |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == [*get_args(ProblemKind)]


def test_the_sizes_of_the_protocol_are_those_of_its_page():
    protocol, text = load_protocol(PROTOCOL), (PAGES / "protocol.md").read_text()
    assert f"protocols/{PROTOCOL}.yaml" in text
    (count,) = {scenes.scenes for scenes in protocol.splits.values()}
    total = len(protocol.trials())
    assert f"{total // len(protocol.tasks)} scenes, {count} of each" in text
    assert f"{total} in all" in text
    for split in protocol.splits:
        assert f"| `{split}` |" in text


def test_pages_link_to_how_to_submit():
    assert (ROOT / SUBMITTING_PAGE).is_file()
    for page in ("leaderboard/README.md", "leaderboard/results/README.md", "CONTRIBUTING.md"):
        folder = (ROOT / page).parent
        links = re.findall(r"\]\(([^)#:]*submitting\.md)\)", (ROOT / page).read_text())
        assert links and all((folder / link).is_file() for link in links)

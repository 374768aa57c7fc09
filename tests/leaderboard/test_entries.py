"""The leaderboard that is in the repository is whole, and its page says what follows from it."""

import pytest
from conftest import ROOT

from fleet_tools.evaluation.protocol import load_protocol
from fleet_tools.leaderboard.standings import standings
from fleet_tools.leaderboard.submissions import read_submissions


@pytest.fixture(scope="module", name="rows")
def _rows():
    protocol = load_protocol("v1")
    submissions, findings = read_submissions(ROOT / "leaderboard" / "results", protocol)
    assert not findings
    return standings(submissions, protocol)


def test_who_does_nothing_never_succeeds_and_the_expert_is_first(rows):
    by_name = {row.name: row for row in rows}
    assert by_name["zero"].total.rate == 0
    assert by_name["expert"].rank == 1


def test_the_page_has_every_method_with_its_total(rows):
    page = (ROOT / "leaderboard" / "index.md").read_text()
    for row in rows:
        assert f"## {row.name.replace('_', chr(92) + '_')}" in page
        if row.total and row.total.rate is not None:
            (line,) = (
                each
                for each in page.splitlines()
                if each.startswith(f"| {row.rank} ")
                and row.name.replace("_", chr(92) + "_") in each
            )
            assert f"{row.total.rate:.1%}" in line

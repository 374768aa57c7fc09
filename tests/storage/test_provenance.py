"""Versions of packages, as files record them."""

from fleet_tools.registration import TOOL_USE
from fleet_tools.storage.provenance import UNKNOWN, installed_packages, other_versions


def test_what_is_installed_does_not_differ_from_itself_and_all_else_does():
    here = installed_packages([*TOOL_USE.packages, "not-installed-by-pip"])
    assert here["not-installed-by-pip"] == UNKNOWN and UNKNOWN not in {
        here[p] for p in TOOL_USE.packages
    }
    assert other_versions(here) == {}
    assert other_versions(here | {"drake": "1.0"}) == {"drake": ("1.0", here["drake"])}
    assert other_versions({"not-installed-by-pip": "1.0"}) == {
        "not-installed-by-pip": ("1.0", None)
    }

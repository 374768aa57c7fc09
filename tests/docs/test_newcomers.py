"""The paths of newcomers consist of blocks that their pages have."""

import ast

import newcomer_paths
import pytest
from newcomer_paths import PATHS, Route, text
from support.pages import DOCS

from fleet_tools.errors import ConfigError


@pytest.mark.parametrize("name", PATHS)
def test_a_path_is_a_script_of_its_pages_blocks(name):
    route = PATHS[name]
    ast.parse(text(route))
    assert "pip install" not in text(route) and route.minutes > 0
    for large, small in route.smaller:
        assert small in text(route) and len(text(route)) > len(small) > len(large) // 2


def test_a_page_that_has_changed_is_noticed():
    page = PATHS["own task"].page
    for changed in (
        Route(page, 1, smaller=(("absent", ""),)),
        Route(page, 1, taken=lambda _: False),
    ):
        with pytest.raises(ConfigError, match="any more"):
            text(changed)
    assert (DOCS / page).is_file()


def test_without_a_wheel_it_says_how_to_make_one(tmp_path, capsys):
    assert newcomer_paths.main(["--wheel", str(tmp_path / "absent.whl")]) == 2
    assert "pip wheel --no-deps ." in capsys.readouterr().err

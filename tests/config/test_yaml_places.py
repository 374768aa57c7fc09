"""Errors in YAML files name the line and the keys."""

import contextlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.config.file_access import task_configs_root
from fleet_tools.config.tasks import TaskConfig, load_task, task_names
from fleet_tools.config.values import load_yaml, read_yaml
from fleet_tools.config.yaml_text import Location, YamlPlaces
from fleet_tools.errors import ConfigError
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.sim.catalog import Keypoints
from fleet_tools.storage.provenance import read_task_file

HAMMER = (task_configs_root() / "hammer.yaml").read_text()
NUMBER = re.compile(r"(?<![\w.])-?\d+(\.\d+)?(?![\w.])")


def complaints(text: str, folder: Path, cls: type = TaskConfig) -> list[str]:
    """Returns the lines of the message about a file, after the first."""
    file = folder / "own.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_yaml(cls, file)
    head, *lines = str(error.value).splitlines()
    assert head.startswith(str(file))
    return [line.strip() for line in lines]


def line_of(text: str, part: str) -> int:
    """Returns the number of the only line of a text that has a part."""
    (number,) = [i for i, line in enumerate(text.splitlines(), 1) if part in line]
    return number


# --- Laws -----------------------------------------------------------------------------------

KEYS = st.text("abcxyz", min_size=1, max_size=3)
SHAPES = st.recursive(
    st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


def leaves(data: Any, location: Location = ()) -> Iterator[tuple[Location, str]]:
    """Yields location and text of every string."""
    if isinstance(data, str):
        yield location, data
    elif data:
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from leaves(value, (*location, key))


def named(shape: Any, names: Iterator[int]) -> Any:
    """Returns a shape, with a string of its own in the place of every None."""
    if isinstance(shape, dict):
        return {key: named(value, names) for key, value in shape.items()}
    if isinstance(shape, list):
        return [named(value, names) for value in shape]
    return f"LEAF{next(names)}END"


@given(SHAPES, st.sampled_from([True, False, None]), st.integers(1, 6))
def test_every_place_is_found_in_block_and_flow_style(shape, flow, indent):
    data = named(shape, itertools.count())
    text = yaml.safe_dump(data, default_flow_style=flow, indent=indent, sort_keys=False, width=1000)
    places = YamlPlaces(text)
    for location, name in leaves(data):
        assert places.find(location) == (location, line_of(text, name))


@given(SHAPES, st.lists(st.sampled_from(["union_tag", 7]), min_size=1, max_size=2))
def test_what_a_text_does_not_hold_is_passed_over(shape, tags):
    data = named(shape, itertools.count())
    places = YamlPlaces(yaml.safe_dump(data))
    for location, _ in leaves(data):
        for i in range(1, len(location) + 1):
            assert places.find((*location[:i], *tags, *location[i:])) == places.find(location)


@pytest.mark.parametrize("name", task_names())
def test_whichever_number_is_spoilt_its_line_is_named(name, tmp_path):
    text = (task_configs_root() / f"{name}.yaml").read_text()
    lines = text.splitlines()
    after_description = line_of(text, "tool_family:")
    for i, line in list(enumerate(lines))[after_description:]:
        for number in list(NUMBER.finditer(line.partition("#")[0]))[:2]:
            spoilt = line[: number.start()] + "[{}, {}]" + line[number.end() :]
            found = complaints("\n".join([*lines[:i], spoilt, *lines[i + 1 :]]), tmp_path)
            assert any(each.startswith(f"own.yaml, line {i + 1}: ") for each in found), found


@pytest.mark.parametrize("key", sorted(TaskConfig.model_fields))
def test_a_key_that_is_given_twice_is_named_with_both_lines(key, tmp_path):
    given_first = [i for i, line in enumerate(HAMMER.splitlines(), 1) if line.startswith(f"{key}:")]
    text = HAMMER + f"{key}: 1\n" * (2 - len(given_first))
    *_, last = range(1, len(text.splitlines()) + 1)
    first = given_first[0] if given_first else last - 1
    expected = (
        f"own.yaml, line {last}: {key}: the key '{key}' is given twice, first in line {first}"
    )
    assert complaints(text, tmp_path) == [expected]


# --- Examples -------------------------------------------------------------------------------

POINTS = """
family: hammer
kind: tool
keypoints:
  head: {link: hammer,
         position: [0.1, 0, 0],
         positon: 0}
  side: &point
    link: 3
    position: [0, left, 0]
  tail:
    <<: *point
    link: hammer
  edge: {}
"""


def test_flow_style_anchors_merges_and_missing_keys(tmp_path):
    assert [each.partition(" (given")[0] for each in complaints(POINTS, tmp_path, Keypoints)] == [
        "own.yaml, line 7: keypoints.head.positon: Unknown key: 'positon'. Did you mean "
        "'position'? Known: link, position.",
        "own.yaml, line 9: keypoints.side.link: Input should be a valid string",
        "own.yaml, line 10: keypoints.side.position.1: Input should be a valid number, unable to "
        "parse string as a number",
        "own.yaml, line 10: keypoints.tail.position.1: Input should be a valid number, unable to "
        "parse string as a number",
        "own.yaml, line 14: keypoints.edge.link: Field required",
        "own.yaml, line 14: keypoints.edge.position: Field required",
    ]


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        (
            "keypoints: [head], within_m",
            "keypoints: [haed], within_m",
            "tool_parts.face.keypoints.0",
        ),
        ("joint: slide, at_least: 0.020", "jiont: slide, at_least: 0.020", "success.0.jiont"),
        ("{type: joint_displacement, joint: slide, at_least: 0.020}", "{}", "success.0"),
        ("type: joint_displacement, joint: slide, at_least: 0.020", "type: x", "success.0.type"),
        (
            "  joint_resistance:",
            "  table_texture: {choice: [cloth, cloht]}\n  joint_resistance:",
            "randomization.table_texture",
        ),
    ],
)
def test_the_line_of_what_does_not_fit_another_part(tmp_path, old, new, place):
    assert HAMMER.count(old) == 1
    text = HAMMER.replace(old, new)
    number = HAMMER[: HAMMER.index(old)].count("\n") + 1
    found = complaints(text, tmp_path)
    assert any(each.startswith(f"own.yaml, line {number}: {place}: ") for each in found), found


def test_cameras_that_are_placed_but_not_declared(tmp_path):
    text = HAMMER.replace("  joint_res", "  cameras: {overhead: {}, wirst: {}}\n  joint_res")
    (found,) = complaints(text, tmp_path)
    line = line_of(text, "  cameras: ")
    assert found.startswith(f"own.yaml, line {line}: randomization.cameras: cameras and ")


def test_the_task_file_of_a_dataset_is_read_with_lines_too(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text(HAMMER.replace("time_limit_s: 10", "time_limit_s: 0"))
    for read in (read_task_file, load_task):
        with pytest.raises(ConfigError, match=r"own\.yaml, line \d+: time_limit_s: "):
            read(str(file))


def test_protocols_name_lines(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text(
        "name: own\nversion: 1\ndescription: x\ntasks:\n  - hammer\n  - hammer\n"
        "splits: {train: {scenes: 1, first_seed: 4503599627370496}}\n"
    )
    with pytest.raises(ConfigError, match=r"own\.yaml, line 4: tasks: a task is given twice"):
        load_protocol(str(file))


TOKENS = [*"{}[]|~?#", ": ", "- ", "\n", "\t", "\0", "&a ", "*a", "<<: ", "'", "...", "2020-13-45"]
TOKENS += [f"!!{tag} " for tag in ("int", "bool", "float", "timestamp", "binary", "set", "omap")]


@given(st.integers(0, len(HAMMER)), st.sampled_from([0, 1, 5, 30]), st.sampled_from(TOKENS))
def test_whatever_the_text_the_error_is_typed(position, dropped, token):
    text = HAMMER[:position] + token + HAMMER[position + dropped :]
    with contextlib.suppress(ConfigError):
        read_yaml(TaskConfig, text, "own.yaml")


@pytest.mark.parametrize(
    "text, column",
    [
        ("a: [", ""),
        ("a: !!int x", ", column 4:"),
        ("a: 2020-13-45", ", column 4:"),
        ("a: !!bool maybe", ", column 4:"),
    ],
)
def test_an_error_of_syntax_or_of_a_tag_names_file_and_line(text, column, tmp_path):
    place = f'in "{tmp_path / "own.yaml"}", line 2{column}'
    assert any(each.startswith(place) for each in complaints("b: 1\n" + text, tmp_path))

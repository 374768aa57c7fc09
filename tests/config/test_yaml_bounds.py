"""YAML has bounds of size and depth, which are checked before anything is built of a text."""

import os
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.config.file_access import task_configs_root
from fleet_tools.config.geometry import Pose
from fleet_tools.config.values import load_yaml
from fleet_tools.config.yaml_text import MAX_CHARACTERS, MAX_DEPTH, MAX_NODES, excess, parse_yaml
from fleet_tools.errors import ConfigError


def bomb(levels: int, line: str) -> str:
    """Returns a text in which each line refers nine times to the one before."""
    lines = ["a0: &a0 {x: 1, y: 2}"]
    for i in range(1, levels):
        aliases = ", ".join([f"*a{i - 1}"] * 9)
        lines.append(line.format(i, aliases))
    return "\n".join(lines)


ATTACKS = {
    "aliases": (bomb(10, "a{0}: &a{0} [{1}]"), "50,000 values"),
    "merge keys": (bomb(10, "a{0}: &a{0} {{<<: [{1}]}}"), "50,000 values"),
    "itself": ("a: &a [*a]", r"own\.yaml, line 1: \*a refers to itself"),
    "itself by merging": ("a: &a {<<: *a}", "refers to itself"),
    "brackets": ("[" * 10**5, "nested more than 100 deep"),
    "braces": ("{a: " * 30_000, "nested more than 100 deep"),
    "dashes": ("- " * 30_000, "nested more than 100 deep"),
    "question marks": ("? " * 30_000, "nested more than 100 deep"),
    "length": ("a" * (MAX_CHARACTERS + 1), "500,001 characters, at most 500,000"),
    "values": ("[" + "1," * MAX_NODES + "]", "50,000 values"),
    "integer": ("a: " + "9" * 101, "a number has 101 characters"),
    "hexadecimal": ("a: 0x" + "f" * 4000, "a number has 4,002 characters"),
    "sexagesimal": ("a: 1" + ":1" * 2000, "a number has 4,001 characters"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_exceeds_the_bounds_is_refused_at_once(name):
    text, message = ATTACKS[name]
    started = time.process_time()
    with pytest.raises(ConfigError, match=message) as error:
        parse_yaml(text, "own.yaml")
    assert time.process_time() - started < 2.0
    assert len(str(error.value)) < 2000


SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=5)
SHAPES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


@given(SHAPES, st.booleans())
def test_plain_data_within_the_bounds_is_read_as_before(data, flow):
    shared = {"one": data, "other": data}  # written with an alias
    text = yaml.safe_dump(shared, default_flow_style=flow)
    assert excess(text) is None
    assert parse_yaml(text, "own.yaml") == shared


@given(st.integers(1, 2 * MAX_DEPTH))
def test_depth_is_counted_in_levels(depth):
    assert (excess("[" * depth + "]" * depth) is None) == (depth <= MAX_DEPTH)


@given(st.integers(1, 400), st.integers(1, 400))
def test_an_alias_counts_as_what_it_stands_for(inside, aliases):
    text = f"- &a [{', '.join(['1'] * inside)}]\n" + "- *a\n" * aliases
    assert (excess(text) is None) == (1 + (inside + 1) * (aliases + 1) <= MAX_NODES)


def test_every_file_of_the_package_is_far_within_the_bounds():
    for path in task_configs_root().rglob("*.yaml"):
        assert path.stat().st_size < MAX_CHARACTERS / 50
        assert excess(path.read_text()) is None


def test_what_is_no_file_or_too_large_is_not_read(tmp_path):
    pipe, large = tmp_path / "pipe.yaml", tmp_path / "large.yaml"
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(10**12)
    for path, message in ((pipe, "is not a file"), (large, "at most 500,000 bytes")):
        with pytest.raises(ConfigError, match=message):
            load_yaml(Pose, path)

"""Task files that extend others."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.config.extends import MAX_LAYERS, _merge
from fleet_tools.config.tasks import TaskConfig, load_task, read_task
from fleet_tools.config.values import read_yaml
from fleet_tools.errors import ConfigError
from fleet_tools.storage.provenance import read_task_file

HAMMER = load_task("hammer")
EXAMPLES = Path(__file__).parents[2] / "examples"


def write(folder: Path, name: str, text: str) -> str:
    """Writes a file, and returns its path."""
    (folder / name).write_text(text)
    return str(folder / name)


def complaint(path: str) -> str:
    """Returns the message about a file."""
    with pytest.raises(ConfigError) as error:
        load_task(path)
    return str(error.value)


# --- The merge ------------------------------------------------------------------------------

# The examples of RFC 7396, appendix A: below, above, merged.
RFC_7396 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]
DATA = st.recursive(
    st.none() | st.integers(0, 3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("below, above, merged", RFC_7396)
def test_files_are_merged_as_json_patches(below: Any, above: Any, merged: Any):
    assert _merge(below, above) == merged


@given(DATA, DATA)
def test_merging_twice_changes_nothing_more(below: Any, above: Any):
    once = _merge(below, above)
    assert _merge(once, above) == once


def test_a_distribution_is_replaced_as_a_whole():
    below = {"uniform": [0, 1]}
    for above in ({"choice": [1, 2]}, 3, {"uniform": [2, 3]}):
        assert _merge(below, above) == above


# --- Tasks ----------------------------------------------------------------------------------


def test_a_task_says_only_how_it_differs(tmp_path: Path):
    own = """
        extends: hammer
        name: own
        control_rate_hz: 10
        randomization: {object_pose: {rpy_deg: [0, 0, 0]}, joint_resistance: null}
        success: [{type: joint_displacement, joint: slide, at_least: 0.01}]
    """
    task = load_task(write(tmp_path, "own.yaml", own))
    pose = HAMMER.randomization.object_pose.model_copy(update={"rpy_deg": (0.0, 0.0, 0.0)})
    drawn = {"object_pose": pose, "joint_resistance": {}}
    randomization = HAMMER.randomization.model_copy(update=drawn)
    changes = {
        "name": "own",
        "control_rate_hz": 10.0,
        "randomization": randomization,
        "success": task.success,
    }
    assert len(task.success) == 1
    assert task == HAMMER.model_copy(update=changes)


@pytest.mark.parametrize(
    "own, change",
    [("", {}), ("{table_peak_N: 7}", {"table_peak_N": 7.0}), ("null", None)],
)
def test_gentle_limits_are_inherited_changed_and_removed(tmp_path: Path, own: str, change: Any):
    file = f"extends: hammer\nname: own\n{own and 'gentle: ' + own}\n"
    stored, limits = read_task_file(write(tmp_path, "own.yaml", file)), HAMMER.gentle
    assert limits is not None
    expected = change if change is None else limits.model_copy(update=change)
    assert stored.content() == HAMMER.model_copy(update={"name": "own", "gentle": expected})
    # Recorded episodes are of the same task, whatever the limits.
    assert stored.content_digest == HAMMER.model_copy(update={"name": "own"}).digest()


def test_stored_tasks_hold_all_that_they_take_from_others(tmp_path: Path):
    write(tmp_path, "base.yaml", "extends: hammer\ntime_limit_s: 5\n")
    own = write(tmp_path, "own.yaml", "extends: base.yaml\nname: own\n")
    stored = read_task_file(own)
    task, file = read_task(own)
    assert [layer.path.name for layer in file.layers] == ["own.yaml", "base.yaml", "hammer.yaml"]
    assert (stored.content(), stored.content_digest) == (task, task.digest())
    assert read_yaml(TaskConfig, stored.text, "it") == task
    write(tmp_path, "base.yaml", "extends: hammer\ntime_limit_s: 6\n")
    assert read_task_file(own).content_digest != stored.content_digest  # another base, another task
    assert stored.load().time_limit_s == 5
    plain = read_task_file("hammer")
    assert plain.text == read_task("hammer")[1].layers[0].text  # verbatim, comments included


def test_stored_text_extends_nothing(tmp_path: Path):
    stored = read_task_file("hammer")
    hostile = stored.model_copy(update={"text": "extends: /etc/passwd\n" + stored.text})
    with pytest.raises(ConfigError, match="Unknown key: 'extends'"):
        hostile.content()


def test_models_are_found_from_the_file_that_names_their_folder(tmp_path: Path):
    shutil.copytree(EXAMPLES / "basket", tmp_path / "basket")
    (tmp_path / "mine").mkdir()
    path = write(tmp_path / "mine", "own.yml", "extends: ../basket/task.yaml\nname: own\n")
    assert load_task(path).assets == str(tmp_path / "basket")
    stored = read_task_file(path)
    assert stored.content().assets == "../basket"  # wherever both folders are
    assert stored.load().assets == str(tmp_path / "basket")


# --- What is wrong --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "own, expected",
    [
        ("extends: hamer", "own.yaml, line 1: extends: Unknown task: 'hamer'. Did you mean 'ham"),
        ("extends: none.yaml", "own.yaml, line 1: extends: Unknown task: 'none.yaml'."),
        ("extends: ../own", "relative to this one"),
        ("name: own\nextends: [hammer]", "own.yaml, line 2: extends: expected a name or the path"),
        ("extends: {a: 1}", "line 1: extends: expected a name or the path of a file"),
        ("extends: true", "line 1: extends: expected a name or the path of a file"),
        ("extends: own.yaml", "line 1: extends: a file cannot extend itself: own.yaml -> own.yaml"),
        ("extends: loop.yaml", "loop.yaml, line 1: extends: a file cannot extend itself: own.yaml"),
        ("extends: torn.yaml", "torn.yaml is not YAML"),
        ("extends: twice.yaml", "twice.yaml, line 2: name: the key 'name' is given twice"),
        ("extends: list.yaml", "own.yaml is not a valid TaskConfig"),
        ("extends: hammer", "own.yaml, line 1: name: Field required"),
        ("extends: hammer\nname: own\ntool_family: null", "line 1: tool_family: Field required"),
        ("extends: early.yaml\nname: own", "early.yaml, line 2: time_limit_s: Input should be"),
        ("extends: early.yaml\nname: own", "early.yaml, line 3: action.rotation_deg: Unknown key"),
        ("extends: early.yaml\nname: own\naction: {translation_m_s: no}", "own.yaml, line 3: acti"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path: Path, own: str, expected: str):
    write(tmp_path, "loop.yaml", "extends: own.yaml")
    write(tmp_path, "torn.yaml", "a: [")
    write(tmp_path, "twice.yaml", "name: a\nname: b")
    write(tmp_path, "list.yaml", "- a")
    write(
        tmp_path,
        "early.yaml",
        "extends: hammer\ntime_limit_s: -1\naction: {rotation_deg: 1, translation_m_s: 1}",
    )
    assert expected in complaint(write(tmp_path, "own.yaml", own))


def test_there_is_a_largest_number_of_files(tmp_path: Path):
    path = write(tmp_path, "0.yaml", "extends: hammer")
    for k in range(1, MAX_LAYERS):
        path = write(tmp_path, f"{k}.yaml", f"extends: {k - 1}.yaml\nname: own")
        if k < MAX_LAYERS - 1:
            assert load_task(path).name == "own"
    assert "0.yaml, line 1: extends: at most" in complaint(path)


def test_files_are_bounded_together(tmp_path: Path):
    for k in range(2):
        lines = "\n".join(f"k{k}_{i}: {i}" for i in range(20_000))
        write(tmp_path, f"{k}.yaml", ("extends: 0.yaml\n" if k else "") + lines)
    assert "1.yaml is too large" in complaint(str(tmp_path / "1.yaml"))


def test_the_merged_text_is_plain_yaml(tmp_path: Path):
    write(tmp_path, "base.yaml", "extends: wrench\ndescription: \"Zöge: 'yes' # no\\n\"")
    path = write(tmp_path, "own.yaml", "extends: base.yaml\nname: own")
    _, file = read_task(path)
    assert yaml.safe_load(file.text) == file.content

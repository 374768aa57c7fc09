"""What the references that are generated from the code must say."""

import re
from typing import get_args

import pytest

pytest.importorskip("torch", reason="the references describe what the extra `learning` needs")

import api_reference
import cli_reference
import reading_order
import task_facts
import yaml_reference
from gymnasium import spaces
from model_docs import attribute_docs, escape, field_types, type_words, unit
from support.pages import DOCS, blocks

import fleet_tools
from fleet_tools.config import predicates
from fleet_tools.config.randomization import Randomization
from fleet_tools.config.tasks import TaskConfig, load_task, task_names
from fleet_tools.config.values import Axis, Count, Positive
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.predicate_sentences import sentence
from fleet_tools.registration import env_id
from fleet_tools.utils import cli
from fleet_tools.utils.option_parser import parse

COMMANDS = {
    f"{name} {command}".strip(): options.options
    for name, program in cli_reference.programs().items()
    for command, options in (
        {"": program.command} if isinstance(program.command, cli.Command) else program.command
    ).items()
}
"""Options of every program and command."""

# --- Programs -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_the_documented_options_are_those_of_the_parser(name, capsys):
    with pytest.raises(SystemExit):
        parse(COMMANDS[name], ["--help"], name)
    names = r"(--[a-z][a-z0-9-]*)"
    shown = re.findall(r"^(?:│ |  )(-.*?)(?:  |$)", capsys.readouterr().out, re.MULTILINE)
    parsed = {each for line in shown for each in re.findall(names, line)}
    options = cli_reference.command_options(COMMANDS[name])
    documented = {each for option in options for each in option.names if each.startswith("--")}
    assert documented == parsed - {"--help"}


def test_every_option_says_what_it_is():
    silent = [
        f"{name} {option.names[0]}"
        for name, options in COMMANDS.items()
        for option in cli_reference.command_options(options)
        if not option.text
    ]
    assert silent == []


# --- The order of reading --------------------------------------------------------------------


def test_a_file_is_read_after_those_that_it_imports():
    page = (DOCS / "reference" / "read_the_code.md").read_text()
    rooms = re.findall(r"```{room-files} (\w+)", page)
    assert rooms == ["config", "robot", "sim", "envs", "perception", "rollouts"]
    for room in rooms:
        files = reading_order.in_order(room)
        assert len(files) == len(list((DOCS.parent / "fleet_tools" / room).glob("[!_]*.py")))
        for k, file in enumerate(files):
            later = {each.stem for each in files[k:]}
            used = re.findall(rf"^from fleet_tools\.{room}\.(\w+) ", file.read_text(), re.MULTILINE)
            assert not later & set(used), file
        assert f"{sum(map(reading_order.lines, files)):,}" in reading_order.room_table(room)


# --- YAML -----------------------------------------------------------------------------------


def test_every_link_of_the_yaml_reference_has_one_target():
    text = yaml_reference.reference()
    labels = re.findall(r"^\(([^)]+)\)=$", text, re.MULTILINE)
    assert len(labels) == len(set(labels))
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= set(labels)


@pytest.mark.parametrize("file", yaml_reference.FILES, ids=lambda file: file.title)
def test_every_key_of_a_file_is_documented(file):
    text = yaml_reference.reference([file])
    assert all(f"| `{key}` |" in text for key in file.model.model_fields)


def test_every_key_has_a_description():
    silent = re.findall(
        r"^\| `(?!type`)\w+` \|.*\|\s*\|$", yaml_reference.reference(), re.MULTILINE
    )
    assert silent == []


def test_every_predicate_is_documented():
    text = yaml_reference.reference()
    union, _ = get_args(predicates.Predicate)
    for predicate in get_args(union):
        (tag,) = get_args(predicate.model_fields["type"].annotation)
        assert f"#### {tag}\n" in text


def test_types_limits_and_units_in_words():
    def words(annotation: object) -> str:
        return type_words(annotation, lambda _: None)

    names = ["within_m", "below_m_s", "posture_rad_s", "rpy_deg", "initial_joints_rad", "steps"]
    assert [unit(name) for name in names] == ["m", "m/s", "rad/s", "degrees", "rad", ""]
    assert words(Positive) == "number, greater than 0"
    assert words(Count | None) == "integer, at least 1 or `null`"
    assert words(Axis) == "list of 2: text"
    assert words(field_types(TaskConfig)["object_mount"]) == "`fixed` or `free`"
    assert words(field_types(Randomization)["initial_joints_rad"]).startswith("text or list of:")


def test_markdown_shows_what_docstrings_say():
    codes = cli_reference.exit_codes("0: well,\n   all.\n130: Ctrl-C")
    assert codes == "- 0: well, all.\n- 130: Ctrl-C"
    shown = escape("`a_b` or a_b of [1, 2], <x>, --like")
    assert shown == r"`a_b` or a\_b of \[1, 2\], \<x\>, `--like`"
    assert attribute_docs(TaskConfig)["success"] == "Success requires all of these predicates."
    assert "Number of robots." in attribute_docs(yaml_reference.FleetConfig)["robots"]


# --- Tasks ----------------------------------------------------------------------------------


def spaces_of(env: ToolUseEnv) -> dict[str, spaces.Space]:
    """Returns the spaces of an observation's entries."""
    assert isinstance(env.observation_space, spaces.Dict)
    return dict(env.observation_space.spaces)


@pytest.mark.parametrize("task", task_names())
def test_observations_are_those_of_the_environment(task, make):
    text = task_facts.observations(load_task(task))
    for mode in ("state", "multitask_state"):
        env = make(env_id(task), obs_mode=mode)
        for name, space in spaces_of(env).items():
            row = (
                rf"\| (every|`{mode}`) \| `{name}` \| `{re.escape(str(space.shape))}` {space.dtype}"
            )
            assert re.search(row, text), (mode, name)


@pytest.mark.parametrize("task", task_names())
def test_every_success_predicate_and_group_of_randomization_is_listed(task):
    config = load_task(task)
    assert task_facts.success(config).count("\n- ") == len(config.success)
    drawn = task_facts.randomization(config)
    given = [group for group, value in config.randomization if value not in ({}, None)]
    assert all(f"| `{group}` |" in drawn for group in given)


def test_every_task_has_a_page_and_a_row_of_the_table():
    text = task_facts.tasks()
    for task in task_names():
        assert f"[`{env_id(task)}`]({task}.md)" in text
        assert f"```{{task-facts}} {task}\n" in (DOCS / "tasks" / f"{task}.md").read_text()


PREDICATES = [
    predicates.JointDisplacement(type="joint_displacement", joint="turn", at_least=1),
    predicates.KeypointsNear(type="keypoints_near", tool="head", object="top", within_m=1),
    predicates.KeypointOverPlace(type="keypoint_over_place", object="top", within_m=1),
    predicates.KeypointRaised(type="keypoint_raised", object="top", at_least_m=1),
    predicates.KeypointsParted(type="keypoints_parted", objects=("a", "b"), at_least_m=1),
    predicates.AxisUpright(type="axis_upright", object=("a", "b"), within_deg=1),
    predicates.Contact(type="contact", between=("tool", "table"), present=False),
    predicates.Still(type="still", seen_from="world", below_m_s=1),
    predicates.UserFunction(type="function", function="own.module:holds"),
]


@pytest.mark.parametrize("predicate", PREDICATES, ids=lambda predicate: predicate.type)
def test_every_predicate_has_a_sentence_with_its_names(predicate):
    text = sentence(predicate, lambda joint: "rad")
    for field in ("joint", "tool", "object", "function"):
        named = getattr(predicate, field, ())
        assert all(f"`{each}`" in text for each in ([named] if isinstance(named, str) else named))
    part = predicates.CausedByPart(type="caused_by_part", part="jaw", change=predicate)
    assert "`jaw`" in sentence(part, lambda joint: "rad")
    assert text in sentence(part, lambda joint: "rad")


def test_the_sentences_are_of_all_predicates():
    union, _ = get_args(predicates.Predicate)
    assert {type(each) for each in PREDICATES} | {predicates.CausedByPart} == set(get_args(union))


# --- Python API -----------------------------------------------------------------------------


def test_the_public_face_is_documented():
    documented = [
        line
        for page in (DOCS / "reference" / "api").glob("*.md")
        for block in blocks(page)
        if block.language == "{api}"
        for line in block.code.split()
    ]
    assert len(documented) == len(set(documented))
    assert {f"fleet_tools.{name}" for name in fleet_tools.__all__} <= set(documented)
    assert all(api_reference.find(each) is not None for each in documented)

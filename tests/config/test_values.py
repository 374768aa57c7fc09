"""Values: round trips through JSON and YAML, digests, and messages about wrong data."""

import json
import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.processes import run_python

from fleet_tools.config.expert import Stay
from fleet_tools.config.geometry import Pose
from fleet_tools.config.randomization import RandomPose
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.config.values import load_yaml, parse
from fleet_tools.errors import ConfigError

floats = st.floats(allow_nan=False, allow_infinity=False)
vectors = st.tuples(floats, floats, floats)
poses = st.builds(Pose, translation_m=vectors, rpy_deg=vectors)


def bits(pose):
    return [number.hex() for number in (*pose.translation_m, *pose.rpy_deg)]


@given(poses)
def test_round_trips_through_json_and_yaml_are_lossless(pose):
    text = yaml.safe_dump(pose.model_dump(mode="json"))
    for plain in (json.loads(pose.to_json()), yaml.safe_load(text)):
        back = parse(Pose, plain, "test")
        assert back == pose and bits(back) == bits(pose)


@given(poses, poses)
def test_digests_are_equal_exactly_if_contents_are(first, second):
    assert (first.digest() == second.digest()) == (first == second)
    assert first.digest() == parse(Pose, json.loads(first.to_json()), "test").digest()


def test_negative_zero_is_zero_to_the_digest_as_it_is_to_equality():
    zero, negative = Pose(), Pose(translation_m=(-0.0, 0.0, 0.0))
    assert zero == negative
    assert zero.digest() == negative.digest()


def test_the_digest_is_the_same_in_another_process():
    pose = Pose(translation_m=(0.1, -2e-300, 3e300))
    code = (
        "import json, sys; from fleet_tools.config.geometry import Pose;"
        "print(json.dumps(Pose(**json.loads(sys.argv[1])).digest()))"
    )
    assert run_python(code, pose.to_json()) == pose.digest()


def test_values_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Pose().rpy_deg = (1.0, 0.0, 0.0)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(number):
    with pytest.raises(ConfigError, match=r"translation_m\.1.*finite") as error:
        parse(Pose, {"translation_m": [0, number, 0]}, "here")
    assert str(number) in str(error.value)


def test_an_unknown_key_is_refused_with_its_place_and_the_nearest():
    data = {"translation_m": [0, 0, 0], "rpy_degrees": [0, 0, 0]}
    with pytest.raises(ConfigError) as error:
        parse(Pose, data, "own.yaml")
    for part in ("own.yaml is not a valid Pose", "'rpy_degrees'", "Did you mean 'rpy_deg'?"):
        assert part in str(error.value)


def test_every_wrong_place_is_listed_at_once():
    with pytest.raises(ConfigError) as error:
        parse(Pose, {"translation_m": ["left", 0, 0], "rpy_deg": [0, 0]}, "own.yaml")
    lines = str(error.value).splitlines()[1:]
    assert any("translation_m.0" in line and "'left'" in line for line in lines)
    assert any("rpy_deg.2: Field required" in line for line in lines)


@pytest.mark.parametrize("wrong", [True, "left", None, [1.0], {"uniform": [0, 1]}])
def test_other_data_than_a_number_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"translation_m\.0"):
        parse(Pose, {"translation_m": [wrong, 0, 0]}, "own.yaml")


@pytest.mark.parametrize("wrong", [True, "many", 2.5, None])
def test_a_count_is_a_whole_number(wrong):
    with pytest.raises(ConfigError, match="steps"):
        parse(Stay, {"type": "stay", "steps": wrong}, "own.yaml")


@pytest.mark.parametrize("data", [None, "text", 3, ["a"]])
def test_data_other_than_a_mapping_is_refused(data):
    with pytest.raises(ConfigError, match="valid dictionary"):
        parse(Pose, data, "own.yaml")


def test_the_nearest_key_is_found_inside_distributions_too():
    data = {"translation_m": [{"uniform": [0, 1], "unifrom": [0, 1]}, 0, 0]}
    with pytest.raises(ConfigError, match=r"Did you mean 'uniform'\?"):
        parse(RandomPose, data, "own.yaml")


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "valid dictionary"),
        (b"a: [1,", "is not YAML"),
        (b"- a\n- b\n", "valid dictionary"),
        (b"\xff\xfe\x00\x80", "YAML"),
        (b"translation_m: [.nan, 0, 0]", "finite"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, content, message):
    file = tmp_path / "file.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as error:
        load_yaml(Pose, file)
    assert "file.yaml" in str(error.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read: No such file"):
        load_yaml(TaskConfig, tmp_path / "none.yaml")

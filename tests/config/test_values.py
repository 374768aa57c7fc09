"""Values: round trips through JSON and YAML, digests, and messages about wrong data."""

import json
import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.config.cameras import StructuredLight
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


def test_values_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Pose().rpy_deg = (1.0, 0.0, 0.0)


WRONG = [
    *((Pose, {"translation_m": [0, number, 0]}, rf"translation_m\.1.*finite.*{number}")
      for number in (math.nan, math.inf, -math.inf)),
    *((Pose, {"translation_m": [number, 0, 0]}, r"translation_m\.0")
      for number in (True, "left", None, [1.0], {"uniform": [0, 1]})),
    *((StructuredLight, {"rows": count}, "rows: ") for count in (True, "many", 2.5, None)),
    *((Pose, data, "valid dictionary") for data in (None, "text", 3, ["a"])),
    (Pose, {"rpy_degrees": [0, 0, 0]}, "not a valid Pose.*'rpy_degrees'.*Did you mean 'rpy_deg'?"),
    # Every wrong place is listed at once.
    (Pose, {"translation_m": ["left", 0, 0], "rpy_deg": [0, 0]},
     r"own\.yaml.*translation_m\.0.*'left'.*\n.*rpy_deg\.2: Field required"),
    (RandomPose, {"translation_m": [{"uniform": [0, 1], "unifrom": [0, 1]}, 0, 0]},
     r"Did you mean 'uniform'\?"),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "data", "message"), WRONG)
def test_wrong_data_is_refused_with_its_place_and_the_nearest_key(cls, data, message):
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        parse(cls, data, "own.yaml")


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

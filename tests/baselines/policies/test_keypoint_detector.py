"""Keypoint detectors: their numbers, turns that look alike, the tool in the hand, and merging."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydrake.math import RigidTransform
from scipy.spatial.transform import Rotation

from fleet_tools.baselines.policies.reading import (
    HeldTool,
    Reading,
    RotationalSymmetry,
    TaskReading,
    in_other_frame,
    turn_angles,
)
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.policy_cases import ACTION, BODIES, CLOUD, STATE
from torch import Tensor, nn

from fleet_merging.errors import MergeError
from fleet_tools.baselines.model_files import IncompatiblePoliciesError, common_blueprint
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import GateConfig, PolicyConfig
from fleet_tools.baselines.policies.encoders import PointNetEncoder, part_means
from fleet_tools.baselines.policies.keypoint_detector import (
    DetectingNetwork,
    KeypointDetector,
    attached,
    behind,
)
from fleet_tools.baselines.policies.layout import LayoutError, Scaling
from fleet_tools.baselines.policies.part_configs import MLPConfig, PointNetConfig
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.baselines.policies.reading import (
    HAND,
    NAMES,
)
from fleet_tools.envs.array_spec import ArraySpec

TURNS = RotationalSymmetry(part="object", fold=6, axis=(0, 1), marker=2)
READING = Reading(
    tasks=(
        TaskReading(name="one", tool=2, object=3, symmetries=(TURNS,)),
        TaskReading(name="other", tool=3, object=1),
    ),
    rows=3,
)
POSE = ArraySpec(kind="state", shape=(3, 4), dtype="float32", unit="m, 1", frame="world")
OWN = {HAND: POSE, "joint_position": STATE["joint_position"]}
OBSERVED = {**OWN, **CLOUD}


def reader(seed: int = 0, reading: Reading = READING) -> Checkpoint:
    config = PolicyConfig(
        body=MLPConfig(layers=1, width=12),
        clouds=PointNetConfig(widths=(8, 16), part_unit_m=0.02),
        reads=("point_cloud",),
    )
    action = ACTION.model_copy(update={"kind": "state", "shape": (reading.size,), "scale": ()})
    blueprint = Blueprint.of(config, CLOUD, action, None, {"obs_mode": "point_cloud"})
    blueprint = blueprint.model_copy(update={"reading": reading})
    return Checkpoint(blueprint, blueprint.create(seed).state_dict())


def policy(body: str = "elman", rows: ArraySpec = READING.layout, **settings) -> Checkpoint:
    layout = dict.fromkeys(NAMES, rows) | OWN
    config = PolicyConfig(body=BODIES[body], **settings)
    rng = np.random.default_rng(0)
    sizes = {name: int(np.prod(each.shape)) for name, each in layout.items()}
    scaling = Scaling(
        mean={name: tuple(rng.normal(size=size)) for name, size in sizes.items()},
        std={name: tuple(rng.uniform(0.5, 2, size)) for name, size in sizes.items()},
    )
    blueprint = Blueprint.of(config, layout, ACTION, scaling, {"obs_mode": "multitask_state"})
    return Checkpoint(blueprint, blueprint.create(1).state_dict())


def network(checkpoint: Checkpoint) -> nn.Module:
    created = checkpoint.blueprint.create().eval()
    created.load_state_dict(checkpoint.weights)
    return created


def seen(batch: int, steps: int, seed: int = 0) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    clouds = rng.normal(size=(batch, steps, 20, 4)) * 0.1
    clouds[..., 3] = rng.choice([-1, 0, 1], (batch, steps, 20))
    joints = rng.normal(size=(batch, steps, 7))
    turns = Rotation.random(batch * steps, rng).as_matrix().reshape(batch, steps, 3, 3)
    X_WE = np.concatenate([turns, rng.normal(size=(batch, steps, 3, 1))], -1)
    return {
        HAND: torch.tensor(X_WE, dtype=torch.float32),
        "point_cloud": torch.tensor(clouds, dtype=torch.float32),
        "joint_position": torch.tensor(joints, dtype=torch.float32),
    }


def test_means_of_parts_are_numpys():
    cloud = seen(2, 3)["point_cloud"]
    cloud[0, 0, :, 3] = 1.0  # no object
    means = part_means(cloud).numpy()
    for index in np.ndindex(2, 3):
        for part, sign in enumerate((1, -1)):
            own = cloud[index].numpy()
            own = own[own[:, 3] == sign, :3]
            expected = own.mean(0) if len(own) else np.zeros(3)
            np.testing.assert_allclose(means[(*index, part)], expected, atol=1e-6)


def test_parts_that_move_as_a_whole_move_their_features_by_the_mean_alone():
    """With weights of the mean at zero, features are the same wherever a part is."""
    encoder = network(reader()).get_submodule("clouds")
    assert isinstance(encoder, PointNetEncoder)
    with torch.no_grad():
        next(encoder.layers[0].parameters())[:, 3:6] = 0
        cloud = seen(1, 1)["point_cloud"]
        moved = cloud.clone()
        moved[..., :3] += torch.where(cloud[..., 3:] > 0, 0.3, -0.2)
        torch.testing.assert_close(encoder(moved), encoder(cloud), rtol=1e-4, atol=1e-5)
        assert (encoder(cloud) != encoder(1.5 * cloud)).any()


def test_coordinates_move_with_the_means():
    """Of a keypoint detector whose network gives nothing, they are the means."""
    made = network(reader())
    assert isinstance(made, KeypointDetector)
    cloud = seen(2, 2)["point_cloud"]
    with torch.no_grad():
        for each in made.head.parameters():
            each.zero_()
        numbers, _ = made({"point_cloud": cloud})
    points = numbers[..., : READING.coordinates].unflatten(-1, (2, READING.rows, 3))
    expected = part_means(cloud)[..., None, :].expand_as(points) / READING.unit_m
    torch.testing.assert_close(points, expected)
    assert not numbers[..., READING.coordinates :].any()


@pytest.mark.parametrize("body", ["mlp", "elman", "gru", "transformer"])
def test_it_acts_as_the_policy_on_what_is_read_and_steps_follow_one_another(body):
    made = network(attached(policy(body), reader()))
    assert isinstance(made, DetectingNetwork)
    observed = seen(3, 5)
    with torch.no_grad():
        keypoints, _ = made.read(observed)
        alone = network(policy(body))
        rest = {name: each for name, each in observed.items() if name != "point_cloud"}
        expected, _ = alone(rest | keypoints)
        actions, _ = made(observed)
        torch.testing.assert_close(actions, expected)
        hidden, parts = None, []
        for t in range(5):
            step = {name: each[:, t : t + 1] for name, each in observed.items()}
            action, hidden = made(step, hidden)
            parts.append(action)
        one_by_one = torch.cat(
            [made({name: each[k, None] for name, each in observed.items()})[0] for k in range(3)]
        )
    torch.testing.assert_close(torch.cat(parts, 1), actions)
    torch.testing.assert_close(one_by_one, actions)


def test_what_is_read_is_what_its_numbers_stand_for():
    """By `Reading` itself: one task in an episode, decided by the sum of its numbers so far."""
    made = network(attached(policy(), reader()))
    assert isinstance(made, DetectingNetwork)
    observed = seen(1, 6)
    observed[HAND][:] = observed[HAND][:, :1].clone()  # the hand rests
    with torch.no_grad():
        numbers = made.detector(observed)[0][0].numpy()
        keypoints, memory = made.read(observed)
    former: np.ndarray | None = None
    scores = np.zeros(2)
    for t, row in enumerate(numbers):
        scores += row[-2:]
        expected, former = READING.keypoints(row, int(scores.argmax()), former)
        for part, name in enumerate(NAMES):
            np.testing.assert_allclose(keypoints[name][0, t], expected[part], atol=1e-6)
    assert former is not None
    np.testing.assert_allclose(memory[1][0], former)


@pytest.mark.parametrize("task", [0, 1])
def test_a_tool_in_late_clouds_is_put_where_the_hand_holds_it(task):
    """By a keypoint detector that gives the means of the parts.

    The tool has one keypoint, or two of six. The object stays where the cloud shows it.
    """
    tasks = (TaskReading(name="one", tool=1, object=3), TaskReading(name="two", tool=2, object=1))
    reading = Reading(tasks=tasks, rows=6)
    eyes, acting = reader(reading=reading), policy(rows=reading.layout)
    made = network(attached(acting, eyes))
    assert isinstance(made, DetectingNetwork)
    observed = seen(1, 6)
    cloud, X_WE = observed["point_cloud"], observed[HAND][0].double().numpy()
    present = cloud[:, :1].expand_as(cloud)
    moved = in_other_frame(present[0, ..., :3].double().numpy(), X_WE[[0, 0, 1, 2, 3, 4]], X_WE)
    late = present.clone()
    late[..., :3] = torch.where(cloud[:, :1, :, 3:] > 0, torch.tensor(moved), late[..., :3])
    with torch.no_grad():
        for each in made.detector.head.parameters():
            each.zero_()
        bias = next(each for each in made.detector.head.parameters() if each.ndim == 1)
        bias[reading.coordinates + 8 + task] = 1.0
        found, _ = made.read({**observed, "point_cloud": late})
        expected, _ = made.read({**observed, "point_cloud": present})
    assert found[NAMES[0]][..., 3].sum() == 6 * (1 + task)
    for name in NAMES:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-5)


def test_a_gated_policy_acts_behind_a_reader():
    gated = policy("mlp", gate=GateConfig(members=2))
    made = network(attached(gated, reader()))
    with torch.no_grad():
        assert made(seen(1, 2))[0].shape == (1, 2, 6)


def test_one_file_holds_both_and_acts_alike(tmp_path):
    checkpoint = attached(policy(), reader())
    save_checkpoint(tmp_path / "seeing.safetensors", checkpoint)
    loaded = load_checkpoint(tmp_path / "seeing.safetensors")
    assert loaded.blueprint == checkpoint.blueprint
    assert loaded.blueprint.env_kwargs == {"obs_mode": "point_cloud", "cloud_source": "rays"}
    assert set(loaded.blueprint.observation) == set(OBSERVED) and loaded.blueprint.with_memory
    acting, expected = NetworkPolicy(loaded), network(checkpoint)(seen(1, 4))[0][0]
    acted = []
    for t in range(4):
        step = {name: each[0, t].numpy() for name, each in seen(1, 4).items()}
        acted.append(acting.act(step))
    np.testing.assert_allclose(acted, expected.detach().clamp(-1, 1), atol=1e-6)


def test_what_does_not_fit_is_refused():
    with pytest.raises(LayoutError, match="checkpoint given as detector is a policy"):
        attached(policy(), policy())
    with pytest.raises(LayoutError, match="without a keypoint detector"):
        attached(reader(), reader())
    with pytest.raises(LayoutError, match="without a keypoint detector"):
        attached(attached(policy(), reader()), reader())
    with pytest.raises(LayoutError, match="there are none"):
        attached(policy(reads=("joint_position",)), reader())
    with pytest.raises(LayoutError, match="does not observe end_effector_pose"):
        attached(policy(reads=NAMES), reader())
    more = READING.model_copy(update={"rows": 4})
    wide = reader().blueprint.model_copy(
        update={
            "reading": more,
            "action": reader().blueprint.action.model_copy(update={"shape": (more.size,)}),
        }
    )
    with pytest.raises(LayoutError, match="the shape of 'object_keypoints'"):
        behind(policy().blueprint, wide)
    with pytest.raises(LayoutError, match="a keypoint detector, which returns no actions"):
        NetworkPolicy(reader())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"reading": READING.model_copy(update={"rows": 4})},
            "expected 34 numbers from a keypoint detector",
        ),
        ({"config": {"body": {"type": "gru"}, "clouds": {}}}, "one network without memory"),
        ({"config": {"clouds": {}, "gate": {"members": 2, "sharpness": 0}}}, "one network"),
        ({"observation": OBSERVED}, "must read exactly"),
    ],
)
def test_blueprints_of_what_is_no_reader_are_refused(change, message):
    given = {**reader().blueprint.model_dump(), **change}
    with pytest.raises(ConfigError, match=message):
        parse(Blueprint, given, "A keypoint detector")


def test_blueprints_of_readers_in_the_wrong_place_are_refused():
    behind_it = attached(policy(), reader()).blueprint
    for change, message in (
        ({"detector": policy().blueprint}, "does not describe a keypoint detector"),
        ({"reading": READING}, "does not describe a keypoint detector"),
        (
            {"observation": {"joint_position": STATE["joint_position"]}},
            "lacks the inputs of its detector",
        ),
        ({"scaling": Scaling(mean={}, std={})}, "the scaling has the sizes"),
    ):
        with pytest.raises(ConfigError, match=message):
            parse(Blueprint, {**dict(behind_it), **change}, "A policy")


def test_they_are_merged_apart():
    blueprint = attached(policy(), reader()).blueprint
    with pytest.raises(MergeError, match="Merge the detectors, merge the policies"):
        blueprint.symmetry()
    other = attached(policy(), reader()).blueprint.model_copy(update={"detector": None})
    with pytest.raises(IncompatiblePoliciesError, match="detector"):
        common_blueprint({"one": blueprint, "other": other})
    assert reader().blueprint.symmetry().axes  # as that of any network


NUT = RotationalSymmetry(part="object", fold=6, axis=(2, 3), marker=1)
TURNING = Reading(
    tasks=(
        TaskReading(name="hammer", tool=3, object=2),
        TaskReading(name="wrench", tool=2, object=4, symmetries=(NUT,)),
    ),
    rows=5,
)
BODY = np.array([[0, 0, 0.004], [0.008, 0.001, 0.003], [0, 0, 0], [0, 0, 0.01], [0, 0, 0]])
"""A nut: its centre, a flat, and the ends of its axis; the last row is none of its keypoints."""


def posed(rng: np.random.Generator, turn: float) -> np.ndarray:
    """Returns the nut turned about its axis, then tilted and moved at random, (rows, 3)."""
    tilt = Rotation.from_rotvec(rng.normal(size=3) * 0.3)
    return tilt.apply(Rotation.from_euler("z", turn).apply(BODY)) + rng.normal(size=3) * 0.1


def numbers(tool: np.ndarray, thing: np.ndarray, task: int) -> np.ndarray:
    return TURNING.targets((tool[None], thing[None]), np.array([task]))[0]


seeds, angles = st.integers(0, 2**32), st.floats(-3, 3)


@given(seed=seeds, turn=angles)
def test_the_way_there_and_back_keeps_keypoints(seed, turn):
    rng = np.random.default_rng(seed)
    tool, thing = rng.normal(size=(5, 3)) * 0.1, posed(rng, turn)
    for task, (of_tool, of_object) in enumerate([(3, 2), (2, 4)]):
        read, _ = TURNING.keypoints(numbers(tool, thing, task), task, None)
        for part, points, count in ((0, tool, of_tool), (1, thing, of_object)):
            np.testing.assert_allclose(read[part, :count, :3], points[:count], atol=1e-6)
            assert (read[part, :count, 3] == 1).all() and not read[part, count:].any()


@given(seed=seeds, turn=angles, sixths=st.integers(1, 5))
def test_turns_that_look_alike_have_the_same_numbers_but_for_the_named_turn(seed, turn, sixths):
    tool = np.random.default_rng(seed).normal(size=(5, 3))
    one, other = (
        numbers(tool, posed(np.random.default_rng(seed), turn + k * np.pi / 3), 1)
        for k in (0, sixths)
    )
    named = slice(TURNING.coordinates + 4, TURNING.coordinates + 6)
    assert abs(one[named] - other[named]).max() > 1e-3
    one[named] = other[named] = 0
    np.testing.assert_allclose(one, other, atol=2e-5)


@given(seed=seeds, turn=angles, off=st.floats(-0.5, 0.5), sixths=st.integers(-6, 6))
def test_among_turns_that_look_alike_it_is_the_one_next_to_the_former(seed, turn, off, sixths):
    rng = np.random.default_rng(seed)
    row = numbers(np.zeros((5, 3)), thing := posed(rng, turn), 1)
    true = turn_angles(thing[None], NUT)[0]
    former = true + sixths * np.pi / 3 + off  # half a sixth is 0.52
    read, found = TURNING.keypoints(row, 1, np.array([0, former]))
    assert found[1] == pytest.approx(former - off, abs=1e-5)
    difference = turn_angles(read[1, None, :, :3], NUT)[0] - (former - off)
    assert np.sin(difference / 2) == pytest.approx(0, abs=1e-4)


@given(seed=seeds, turn=angles, off=st.floats(-0.5, 0.5))
def test_a_named_turn_that_is_roughly_right_suffices_at_first(seed, turn, off):
    rng = np.random.default_rng(seed)
    thing = posed(rng, turn)
    row, true = numbers(np.zeros((5, 3)), thing, 1), turn_angles(thing[None], NUT)[0]
    row[TURNING.coordinates + 4 : TURNING.coordinates + 6] = 0.1 * np.array(
        [np.cos(true + off), np.sin(true + off)]
    )
    read, _ = TURNING.keypoints(row, 1, None)
    np.testing.assert_allclose(read[1, :4, :3], thing[:4], atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 3}, "4 keypoints do not fit into 3 rows"),
        ({"tasks": ()}, "tasks"),
        (
            {"tasks": ({"name": "a", "tool": 1, "object": 3, "symmetries": (NUT,)},)},
            "the object of a has no such keypoint",
        ),
        (
            {"tasks": ({"name": "a", "tool": 1, "object": 4, "symmetries": (NUT, NUT)},)},
            "two symmetries of the same part",
        ),
    ],
)
def test_readings_that_cannot_be_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        parse(Reading, {**dict(TURNING), **change}, "What is read")


ROWS = 4
SEEDS = st.integers(0, 2**32 - 1)


def poses(rng: np.random.Generator, count: int, step_m: float = 0.02) -> np.ndarray:
    """Poses of a hand that moves at random, (count, 3, 4)."""
    positions = np.cumsum(rng.normal(scale=step_m, size=(count, 3)), 0)
    turns = Rotation.from_rotvec(np.cumsum(rng.normal(scale=0.05, size=(count, 3)), 0))
    return np.concatenate([turns.as_matrix(), positions[:, :, None]], -1)


def as_shown(tool: np.ndarray, X_WE: np.ndarray, delay: int) -> np.ndarray:
    """Keypoints as clouds show them: by Drake, and from the hand that held them to the present."""
    shown = []
    for t, now in enumerate(X_WE):
        then = X_WE[max(t - delay, 0)]
        X = RigidTransform(now).inverse() @ RigidTransform(then)
        shown.append(X.multiply(tool.T).T)
    return np.stack(shown)


def followed(shown: np.ndarray, X_WE: np.ndarray) -> np.ndarray:
    memory, found = HeldTool.begin(shown[:1], X_WE[:1]), []
    for points, X in zip(shown, X_WE, strict=True):
        held, memory = memory.follow(points[None], X[None])
        found.append(held[0])
    return np.stack(found)


@given(SEEDS)
def test_frames_are_exchanged_as_drake_does(seed):
    rng = np.random.default_rng(seed)
    A, B = poses(rng, 3), poses(rng, 3)
    points = rng.normal(size=(3, ROWS, 3))
    expected = [
        (RigidTransform(b).inverse() @ RigidTransform(a)).multiply(p.T).T
        for a, b, p in zip(A, B, points, strict=True)
    ]
    np.testing.assert_allclose(in_other_frame(points, A, B), expected, atol=1e-12)


@given(SEEDS)
def test_a_tool_that_is_shown_late_is_put_into_the_hand(seed):
    rng = np.random.default_rng(seed)
    tool, X_WE = rng.normal(scale=0.1, size=(ROWS, 3)), poses(rng, 12)
    held = followed(as_shown(tool, X_WE, 1), X_WE)
    np.testing.assert_allclose(held, np.broadcast_to(tool, held.shape), atol=1e-9)


@given(SEEDS)
def test_a_tool_that_is_shown_without_delay_stays_to_the_bit(seed):
    rng = np.random.default_rng(seed)
    tool, X_WE = rng.normal(scale=0.1, size=(ROWS, 3)), poses(rng, 12)
    shown = np.broadcast_to(tool, (12, ROWS, 3))
    np.testing.assert_array_equal(followed(shown, X_WE), shown)


@pytest.mark.parametrize("delay", [0, 1])
def test_errors_of_reading_hardly_hide_the_delay(delay):
    """Each keypoint is off by 4 mm in each step, and by 4 mm in all of them."""
    rng = np.random.default_rng(delay)
    right = []
    for _ in range(50):
        tool, X_WE = rng.normal(scale=0.1, size=(ROWS, 3)), poses(rng, 20)
        errors = rng.normal(scale=0.004, size=(20, ROWS, 3)) + rng.normal(
            scale=0.004, size=(ROWS, 3)
        )
        held = followed(as_shown(tool, X_WE, delay) + errors, X_WE)
        right.append(np.linalg.norm(held[5:] - tool, axis=-1).mean(-1) < 0.02)
    assert np.mean(right) > 0.98


def test_a_hand_that_rests_moves_nothing_and_episodes_are_told_apart():
    rng = np.random.default_rng(0)
    tool, moving = rng.normal(scale=0.1, size=(ROWS, 3)), poses(rng, 8)
    resting = np.repeat(moving[:1], 8, 0)
    late = as_shown(tool, moving, 1)
    both = np.stack([late, np.broadcast_to(tool, late.shape), late], 1)
    X_WE = np.stack([moving, resting, moving], 1)
    memory = HeldTool.begin(both[0], X_WE[0])
    for points, X in zip(both, X_WE, strict=True):
        held, memory = memory.follow(points, X)
        np.testing.assert_allclose(held, np.broadcast_to(tool, held.shape), atol=1e-9)

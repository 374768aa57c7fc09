"""Policies behind a reader of keypoints: they act as the policy does on what is read."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from scipy.spatial.transform import Rotation
from support.policy_cases import ACTION, BODIES, CLOUD, STATE
from torch import Tensor, nn

from fleet_merging.errors import MergeError
from fleet_tools.baselines.model_files import IncompatiblePoliciesError, common_blueprint
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import GateConfig, PolicyConfig
from fleet_tools.baselines.policies.encoders import PointNetEncoder, part_means
from fleet_tools.baselines.policies.held_tool import in_other_frame
from fleet_tools.baselines.policies.layout import LayoutError, Scaling
from fleet_tools.baselines.policies.part_configs import MLPConfig, PointNetConfig
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.baselines.policies.reader import KeypointReader, ReadingNetwork, attached, behind
from fleet_tools.baselines.policies.reading import (
    HAND,
    NAMES,
    Reading,
    RotationalSymmetry,
    TaskReading,
)
from fleet_tools.config.values import parse
from fleet_tools.envs.array_spec import ArraySpec
from fleet_tools.errors import ConfigError

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
    """Of a reader whose network gives nothing, they are the means."""
    made = network(reader())
    assert isinstance(made, KeypointReader)
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
    assert isinstance(made, ReadingNetwork)
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
    assert isinstance(made, ReadingNetwork)
    observed = seen(1, 6)
    observed[HAND][:] = observed[HAND][:, :1].clone()  # the hand rests
    with torch.no_grad():
        numbers = made.reader(observed)[0][0].numpy()
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
    """By a reader that gives the means of the parts, with one keypoint of the tool or two of six.

    The object stays where the cloud shows it.
    """
    tasks = (TaskReading(name="one", tool=1, object=3), TaskReading(name="two", tool=2, object=1))
    reading = Reading(tasks=tasks, rows=6)
    eyes, acting = reader(reading=reading), policy(rows=reading.layout)
    made = network(attached(acting, eyes))
    assert isinstance(made, ReadingNetwork)
    observed = seen(1, 6)
    cloud, X_WE = observed["point_cloud"], observed[HAND][0].double().numpy()
    present = cloud[:, :1].expand_as(cloud)
    moved = in_other_frame(present[0, ..., :3].double().numpy(), X_WE[[0, 0, 1, 2, 3, 4]], X_WE)
    late = present.clone()
    late[..., :3] = torch.where(cloud[:, :1, :, 3:] > 0, torch.tensor(moved), late[..., :3])
    with torch.no_grad():
        for each in made.reader.head.parameters():
            each.zero_()
        bias = next(each for each in made.reader.head.parameters() if each.ndim == 1)
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
    with pytest.raises(LayoutError, match="checkpoint is a policy's"):
        attached(policy(), policy())
    with pytest.raises(LayoutError, match="has none, and is none"):
        attached(reader(), reader())
    with pytest.raises(LayoutError, match="has none, and is none"):
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
    with pytest.raises(LayoutError, match="a reader of keypoints, which does not act"):
        NetworkPolicy(reader())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reading": READING.model_copy(update={"rows": 4})}, "a reader gives 34 numbers"),
        ({"config": {"body": {"type": "gru"}, "clouds": {}}}, "one network without memory"),
        ({"config": {"clouds": {}, "gate": {"members": 2, "sharpness": 0}}}, "one network"),
        ({"observation": OBSERVED}, "other entries"),
    ],
)
def test_blueprints_of_what_is_no_reader_are_refused(change, message):
    given = {**reader().blueprint.model_dump(), **change}
    with pytest.raises(ConfigError, match=message):
        parse(Blueprint, given, "A reader")


def test_blueprints_of_readers_in_the_wrong_place_are_refused():
    behind_it = attached(policy(), reader()).blueprint
    for change, message in (
        ({"reader": policy().blueprint}, "not that of a reader"),
        ({"reading": READING}, "not that of a reader"),
        ({"observation": {"joint_position": STATE["joint_position"]}}, "what its reader reads"),
        ({"scaling": Scaling(mean={}, std={})}, "the scaling has the sizes"),
    ):
        with pytest.raises(ConfigError, match=message):
            parse(Blueprint, {**dict(behind_it), **change}, "A policy")


def test_they_are_merged_apart():
    blueprint = attached(policy(), reader()).blueprint
    with pytest.raises(MergeError, match="Merge the readers, and the policies"):
        blueprint.symmetry()
    other = attached(policy(), reader()).blueprint.model_copy(update={"reader": None})
    with pytest.raises(IncompatiblePoliciesError, match="reader"):
        common_blueprint({"one": blueprint, "other": other})
    assert reader().blueprint.symmetry().axes  # as that of any network

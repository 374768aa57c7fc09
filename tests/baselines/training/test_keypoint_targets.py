"""Keypoint detectors learn from collected clouds, and act with a policy: the whole way, small."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from pydrake.math import RigidTransform
from support.collected import ONE_PAIR, options

from fleet_tools import collect
from fleet_tools.baselines import attach_detector, train
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import policy_config, read_policy_config
from fleet_tools.baselines.policies.keypoint_detector import attached
from fleet_tools.baselines.policies.layout import LayoutError
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.baselines.policies.reading import NAMES
from fleet_tools.baselines.training.config import SymmetryOption
from fleet_tools.baselines.training.demonstrations import blueprint_of
from fleet_tools.baselines.training.rollouts import make_success_measure
from fleet_tools.baselines.training.targets import keypoint_reading
from fleet_tools.dataset.samples import Samples
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.policies.sources import find_policy
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.splits import VALIDATION

SEEN = ("cloud_size=[12,10]", "camera_size=[80,60]")
SMALL = [
    "--set", "clouds.widths=[8,16]", "--set", "body.layers=1", "--set", "body.width=16",
    "--threads", "1", "--quiet",
]  # fmt: skip
READER = ["--keypoints", "--architecture", "pointnet_mlp", "--set", "clouds.part_unit_m=0.02"]
PAIRS = {"hammer": ONE_PAIR, "wrench": ["--env", "tool=brass", "object=hex_nut"]}


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory):
    """Two noisy episodes each of hammer and wrench, with clouds and keypoints."""
    folders = []
    for task, pair in PAIRS.items():
        folder = tmp_path_factory.mktemp("data") / task
        given = ["--quiet", "--policy", "noisy_expert", "--obs-mode", "cloud_and_keypoints"]
        assert collect.main(options(folder, *given, *pair, *SEEN, task=task, episodes=2)) == 0
        folders.append(folder)
    return folders


def target(data, *symmetries, config=None):
    config = config or policy_config("pointnet_mlp")
    return keypoint_reading(data, config, symmetries, fraction=0.5, seed=0, check=True)


TURNS = SymmetryOption(task="wrench", part="object", fold=6, axis=("base", "top"))


def test_what_is_to_be_learned_stands_for_the_keypoints_of_every_step(data):
    made = target(data, TURNS)
    reading = made.blueprint.reading
    assert reading is not None
    names = [task.name for task in reading.tasks]
    assert names == ["hammer", "wrench"] and reading.tasks[1].symmetries[0].axis == (4, 3)
    trajectories = made.trajectories(made.training, "cpu")
    assert trajectories.imitated.all()  # noise in the actions is none in what is seen
    batch = trajectories.batch(np.arange(len(trajectories.imitated)))
    observed = Samples(data, observations=NAMES)
    both = observed.read(np.arange(int(observed.lengths.sum())))["observation"]
    keypoints = np.stack([both[name] for name in NAMES], 1)
    for row in batch.actions[:, 0, 0].numpy():
        task = int(row[-2:].argmax())
        read, _ = reading.keypoints(row, task, None)
        assert (abs(keypoints - read).reshape(len(keypoints), -1).max(1) < 1e-5).any()


def test_a_tool_is_to_be_read_where_delayed_cameras_show_it(tmp_path):
    """Its label then keeps its place among the points, which the exact keypoints leave."""
    given = ["--quiet", "--obs-mode", "cloud_and_keypoints", *ONE_PAIR, *SEEN]
    late = [*given, "sensors=active_stereo"]
    assert collect.main(options(tmp_path / "late", *late, task="hammer", episodes=1)) == 0
    made = keypoint_reading(
        [tmp_path / "late"], policy_config("pointnet_mlp"), [], fraction=0, seed=0, check=True
    )
    reading, labels = made.blueprint.reading, made.labels(made.samples)
    assert reading is not None and labels is not None
    observed = made.samples.read(np.arange(len(labels)))["observation"]
    exact, X_WE = observed["tool_keypoints"][:, 0, :3], observed["end_effector_pose"]
    labelled = labels[:, :3] * reading.unit_m
    expected = [exact[0]]
    for before, now, point in zip(X_WE, X_WE[1:], exact, strict=False):
        X = RigidTransform(now.astype(float)).inverse() @ RigidTransform(before.astype(float))
        expected.append(X.multiply(point.astype(float)))
    np.testing.assert_allclose(labelled, expected, atol=1e-5)
    cloud = observed["point_cloud"]
    means = np.stack([each[each[:, 3] > 0, :3].mean(0) for each in cloud])
    varies = [np.linalg.norm((means - each).std(0)) for each in (labelled, exact)]
    assert varies[0] < 0.6 * varies[1]


def test_a_reader_is_trained_and_resumed_and_acts_with_a_policy(data, tmp_path, capsys):
    folders = list(map(str, data))
    output = ["--output", str(tmp_path / "detector")]
    given = ["--dataset", *folders, *READER, "--symmetry", "wrench.object=6:base:top", *SMALL]
    assert train.main([*given, *output, "--epochs", "2"]) == 0
    before = json.loads((tmp_path / "detector" / "metrics.jsonl").read_text().splitlines()[0])
    assert train.main([*given, *output, "--epochs", "2"]) == 0  # nothing is left to do
    unnamed = [each for each in given if "symmetry" not in each and "base:top" not in each]
    assert train.main([*unnamed, *output, "--epochs", "2"]) == 2  # something else is read
    wider = [*given, "--set", "body.width=17"]
    assert train.main([*wider, *output, "--epochs", "2"]) == 2  # another detector
    assert before["loss"] > 0
    state = [*NAMES, "end_effector_pose"]
    policy = ["--dataset", *folders, "--architecture", "elman", "--observations", *state]
    policy += ["--set", "body.layers=1", "--set", "body.width=8", "--epochs", "1", "--quiet"]
    assert train.main([*policy, "--output", str(tmp_path / "policy")]) == 0
    parts = [f"--{name}={tmp_path / name / 'last.safetensors'}" for name in ("policy", "detector")]
    seeing = tmp_path / "seeing.safetensors"
    capsys.readouterr()
    assert attach_detector.main([*parts, "--output", str(seeing), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"output": str(seeing)}
    assert attach_detector.main([*parts, "--output", str(seeing)]) == 2
    detector = tmp_path / "detector" / "last.safetensors"
    content = detector.read_bytes()
    assert attach_detector.main([*parts, "--output", str(detector), "--overwrite"]) == 2
    assert detector.read_bytes() == content and "one of" in capsys.readouterr().err
    source = find_policy(str(seeing))
    assert source.env_kwargs["obs_mode"] == "point_cloud"
    env = EnvSpec.of("wrench", **source.env_kwargs).make_tool_use()
    acting = source.make(env)
    observation, _ = env.reset(seed=0)
    acting.reset()
    assert "object_keypoints" not in observation
    for _ in range(3):
        observation, *_ = env.step(acting.act(observation))
    env.close()
    assert load_checkpoint(seeing).blueprint.with_memory


def test_policies_on_keypoints_are_judged_behind_a_reader(data, tmp_path):
    """As fleets with a `detector` are: the same end as of the attached policy in an environment."""
    reading = target(data).blueprint
    eyes = Checkpoint(reading, reading.create(0).state_dict())
    save_checkpoint(tmp_path / "detector.safetensors", eyes)
    samples = Samples(data[:1], observations=[*NAMES, "end_effector_pose"])
    of_policy = blueprint_of(policy_config("elman"), samples)
    policy = Checkpoint(of_policy, of_policy.create(0).state_dict())
    detector = str(tmp_path / "detector.safetensors")
    measure = make_success_measure(data[:1], 1, of_policy, first=3, detector=detector)
    found = measure(policy)
    seeing = attached(policy, eyes)
    env = EnvSpec.of("hammer", **seeing.blueprint.env_kwargs).make_tool_use()
    alone = rollout(env, NetworkPolicy(seeing), seed=VALIDATION[3])
    env.close()
    assert found is not None and found["hammer"]["outcomes"] == {alone.outcome: 1}
    save_checkpoint(tmp_path / "detector.safetensors", policy)
    with pytest.raises(LayoutError, match="checkpoint given as detector is a policy"):
        make_success_measure(data[:1], 1, of_policy, detector=detector)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"task": "knife"}, UnknownNameError, "knife"),
        ({"axis": ("base", "tip")}, UnknownNameError, "keypoint of the object"),
        ({"part": "tool", "axis": ("lower", "lower")}, ConfigError, "cannot be determined"),
    ],
)
def test_symmetries_that_the_data_do_not_have_are_refused(change, error, message, data):
    with pytest.raises(error, match=message):
        target(data, TURNS.model_copy(update=change))


def test_other_layouts_and_readers_are_refused(data, tmp_path, capsys):
    with pytest.raises(ConfigError, match="reads one cloud"):
        target(data, config=policy_config("pointnet_elman"))
    with pytest.raises(ConfigError, match="reads one cloud"):
        target(data, config=read_policy_config("pointnet_mlp", [("chunk", 2)]))
    given = ["--dataset", str(data[0]), *READER, *SMALL, "--output", str(tmp_path / "detector")]
    for more in (["--rollouts", "3"], ["--teacher", "a"], ["--observations", "point_cloud"]):
        with pytest.raises(SystemExit, match="2"):
            train.main([*given, *more])
        assert "returns no actions" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        train.main([*given, "--symmetry", "wrench.object=6"])
    assert "expected TASK.PART=FOLD:FROM:TO" in capsys.readouterr().err
    assert not (tmp_path / "detector").exists()

"""A checkpoint is a whole policy or none, and acts only where it was made for."""

import json
import pickle

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
from conftest import needs_gl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from policy_cases import ACTION, BLUEPRINTS, BODIES, STATE, made, observations, step
from safetensors import safe_open
from safetensors.torch import save_file

from fleet_tools.baselines.merge import read_model
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import PointNet, PolicyConfig
from fleet_tools.baselines.policies.errors import CheckpointError, LayoutError
from fleet_tools.baselines.policies.policy import NetworkPolicy, load_policy
from fleet_tools.dataset.header import describe_action, describe_observation
from fleet_tools.rollouts.episode import rollout

EVERY = pytest.mark.parametrize("name", BLUEPRINTS)
KEY = "fleet_tools_policy"


def checkpoint(name="mlp on state"):
    return Checkpoint(BLUEPRINTS[name], made(name).state_dict())


@pytest.fixture(name="path")
def _path(tmp_path):
    save_checkpoint(tmp_path / "policy.safetensors", checkpoint())
    return tmp_path / "policy.safetensors"


def rewritten(path, change):
    """The same file, with other metadata."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
        weights = {name: file.get_tensor(name) for name in made("mlp on state").state_dict()}
    save_file(weights, path, change(metadata))
    return path


def with_json(path, **changes):
    return rewritten(path, lambda notes: {KEY: json.dumps(json.loads(notes[KEY]) | changes)})


@EVERY
def test_what_is_stored_comes_back_bit_for_bit(name, tmp_path):
    path, again = tmp_path / "policy.safetensors", tmp_path / "again.safetensors"
    save_checkpoint(path, checkpoint(name))
    stored = load_checkpoint(path)
    assert stored.blueprint == BLUEPRINTS[name]
    assert stored.weights.keys() == made(name).state_dict().keys()
    for key, tensor in made(name).state_dict().items():
        assert stored.weights[key].dtype == tensor.dtype
        assert stored.weights[key].numpy().tobytes() == tensor.numpy().tobytes()
    save_checkpoint(again, stored)
    assert again.read_bytes() == path.read_bytes()
    assert sorted(tmp_path.iterdir()) == [again, path]


@EVERY
def test_a_stored_policy_acts_as_its_network_does(name, tmp_path):
    save_checkpoint(tmp_path / "policy.safetensors", checkpoint(name))
    policy = load_policy(tmp_path / "policy.safetensors")
    trajectories = observations(BLUEPRINTS[name], 2, 5)
    with torch.no_grad():
        expected = made(name)(trajectories)[0].clamp(-1, 1).numpy()
    for batch in range(2):
        policy.reset()  # what it remembers of the first trajectory would show in the second
        for t in range(5):
            action = policy.act(step(trajectories, batch, t))
            assert action.shape == (6,) and action.dtype == np.float32
            np.testing.assert_allclose(action, expected[batch, t], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("body", BODIES)
def test_an_episode_depends_on_the_last_one_without_reset_only_in_what_remembers(body):
    policy = NetworkPolicy(checkpoint(f"{body} on state"))
    trajectories = observations(policy.blueprint, 1, 2)
    first = policy.act(step(trajectories, 0, 0))
    policy.act(step(trajectories, 0, 1))
    assert np.array_equal(policy.act(step(trajectories, 0, 0)), first) == (body == "mlp")
    policy.reset()
    np.testing.assert_array_equal(policy.act(step(trajectories, 0, 0)), first)


def test_actions_stay_within_their_bounds():
    name = "mlp on state"
    loud = {key: 30 * tensor for key, tensor in made(name).state_dict().items()}
    policy = NetworkPolicy(Checkpoint(BLUEPRINTS[name], loud))
    action = policy.act(step(observations(BLUEPRINTS[name], 1, 1), 0, 0))
    assert set(action.tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o: {}, "'joint_position' is not there; 'object_keypoints' is not there"),
        (lambda o: list(o), "given is a list"),
        (lambda o: o | {"joint_position": np.zeros(6, np.float32)}, r"\(6,\), not float32 \(7,\)"),
        (lambda o: o | {"joint_position": np.zeros(7)}, r"is float64 \(7,\), not float32"),
        (lambda o: o | {"object_keypoints": [1.0] * 6}, "'object_keypoints' is a list"),
    ],
)
def test_an_observation_of_another_layout_is_refused_and_forgotten(change, message):
    policy = NetworkPolicy(checkpoint("gru on state"))
    trajectories = observations(policy.blueprint, 1, 2)
    expected = [policy.act(step(trajectories, 0, t)) for t in range(2)]
    policy.reset()
    actions = [policy.act(step(trajectories, 0, 0))]
    with pytest.raises(LayoutError, match=message):
        policy.act(change(step(trajectories, 0, 1)))
    actions.append(policy.act(step(trajectories, 0, 1) | {"more": np.zeros(3)}))
    np.testing.assert_array_equal(actions, expected)


def test_another_layout_of_data_is_refused_before_there_is_a_network():
    mlp = PolicyConfig(body=BODIES["mlp"])
    cloud = BLUEPRINTS["mlp on clouds"].observation
    with pytest.raises(LayoutError, match=r"no encoder for point_cloud.*`clouds`"):
        Blueprint.of(mlp, cloud, ACTION)
    with pytest.raises(LayoutError, match="has `clouds`, and there is no cloud"):
        Blueprint.of(PolicyConfig(body=BODIES["mlp"], clouds=PointNet()), STATE, ACTION)
    for name in ("wrist_depth", "wrist_rgb", "point_cloud"):
        with pytest.raises(LayoutError, match=rf"'{name}' \(float32 \(7,\)\) is nothing that"):
            Blueprint.of(mlp, STATE | {name: STATE["joint_position"]}, ACTION)
    with pytest.raises(LayoutError, match="nothing to read"):
        Blueprint.of(mlp, {}, ACTION)
    with pytest.raises(ValueError, match="did you mean 'joint_position'"):
        Blueprint.of(PolicyConfig(reads=("joint_positions",)), STATE, ACTION)


def test_entries_are_read_in_one_order_however_they_are_given():
    backwards = dict(reversed(STATE.items()))
    config = PolicyConfig(body=BODIES["mlp"])
    assert Blueprint.of(config, backwards, ACTION).to_json() == BLUEPRINTS["mlp on state"].to_json()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(part=st.floats(0, 1, exclude_max=True))
def test_a_file_that_was_cut_off_is_refused(path, part):
    content = path.read_bytes()
    cut = path.with_name("cut.safetensors")
    cut.write_bytes(content[: int(part * len(content))])
    with pytest.raises(CheckpointError, match=r"cut\.safetensors is no checkpoint"):
        load_checkpoint(cut)


def test_what_is_no_checkpoint_is_refused_and_no_pickle_is_read(path):
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        load_checkpoint(path.with_name("absent.safetensors"))
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        load_checkpoint(path.parent)

    class Bomb:
        def __reduce__(self):
            return pytest.fail, ("a pickle was read",)

    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        load_checkpoint(path)
    torch.save(dict(made("mlp on state").state_dict()), path)
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        load_checkpoint(path)


def test_weights_without_a_policy_are_refused(path):
    with pytest.raises(CheckpointError, match="holds weights, and not what they are weights of"):
        load_checkpoint(rewritten(path, lambda _: None))
    with pytest.raises(CheckpointError, match="no JSON object"):
        load_checkpoint(rewritten(path, lambda _: {KEY: "[1, 2"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 1}, "its version is 1, and this one of fleet_tools reads 2"),
        ({"version": None}, "its version is None"),
        ({"colour": "red"}, "There is no key 'colour'"),
        ({"action": None}, "action: "),
        ({"config": {"body": {"type": "mlb"}}}, "config.body"),
        ({"scaling": {"mean": {}, "std": {}}}, "the scaling has the numbers {}"),
        ({"config": {"body": {"layers": 3, "type": "mlp"}}}, "body.layers.2.weight is missing"),
        ({"config": {"body": {"type": "gru"}}}, "body.core.weight_ih_l0 is missing.* more"),
        ({"config": {"reads": ["joint_position"]}}, "the config reads other entries"),
        ({"observation": {}}, "nothing to read"),
    ],
)
def test_a_policy_that_this_version_cannot_run_is_refused(path, changes, message):
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(with_json(path, **changes))


def test_weights_of_another_network_are_never_stored():
    weights = made("mlp on state").state_dict()
    with pytest.raises(CheckpointError, match=r"head.bias is float32 \(3,\), not float32 \(6,\)"):
        Checkpoint(BLUEPRINTS["mlp on state"], weights | {"head.bias": torch.zeros(3)})
    with pytest.raises(CheckpointError, match=r"head\.bias is float64"):
        Checkpoint(BLUEPRINTS["mlp on state"], weights | {"head.bias": torch.zeros(6).double()})
    with pytest.raises(CheckpointError, match=r"head\.bias holds NaN or infinity"):
        Checkpoint(BLUEPRINTS["mlp on state"], weights | {"head.bias": torch.zeros(6) / 0})
    with pytest.raises(CheckpointError, match=r"tail\.bias is none of its own"):
        Checkpoint(BLUEPRINTS["mlp on state"], weights | {"tail.bias": torch.zeros(6)})


def test_a_checkpoint_does_not_change_as_training_goes_on():
    network = BLUEPRINTS["mlp on state"].create()
    taken = Checkpoint(BLUEPRINTS["mlp on state"], network.state_dict())
    with torch.no_grad():
        network.head.bias += 1
    assert torch.equal(taken.weights["head.bias"], made("mlp on state").head.bias)


def test_a_crash_while_writing_leaves_what_was_there(path, monkeypatch):
    before = path.read_bytes()

    def crash(tensors, target, metadata):
        target.write_bytes(before[:100])
        raise OSError("no space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", crash)
    with pytest.raises(OSError, match="no space"):
        save_checkpoint(path, checkpoint())
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_the_merging_program_reads_a_checkpoint_as_a_state_dict(path):
    for name, tensor in read_model(path).items():
        assert torch.equal(tensor, made("mlp on state").state_dict()[name])


def test_a_policy_acts_in_its_own_environment_and_in_no_other(make, hammer, tmp_path):
    path = tmp_path / "policy.safetensors"
    observation, action = describe_observation(hammer), describe_action(hammer)
    blueprint = Blueprint.of(PolicyConfig(body=BODIES["gru"]), observation, action)
    save_checkpoint(path, Checkpoint(blueprint, blueprint.create().state_dict()))
    policy = load_policy(path, hammer)
    first, again = (rollout(hammer, policy, seed=3) for _ in range(2))
    assert first.outcome == "time_limit" and len(first) == len(again) == 60
    np.testing.assert_array_equal(first.actions, again.actions)
    assert np.ptp(first.actions, axis=0).all()
    spatula = make("FleetTools/Spatula-v0")
    with pytest.raises(LayoutError, match="the entries of 'tool_keypoints' is"):
        load_policy(path, spatula)
    assert rollout(spatula, policy, seed=3).outcome == "policy_error"
    scaled = action.model_copy(update={"scale": (0.01,) * 6})
    with pytest.raises(LayoutError, match="the scale is"):
        Blueprint.of(blueprint.config, observation, scaled).require_environment(hammer)


@needs_gl
@pytest.mark.parametrize(
    ("name", "keywords"),
    [
        ("clouds", {"obs_mode": "point_cloud"}),
        ("pictures", {"obs_mode": "rgbd", "channels": ("rgb",), "camera_size": (64, 48)}),
    ],
)
def test_what_cameras_see_can_be_acted_upon(make, name, keywords):
    env = make(tool="claw", object="round_nail", **keywords)
    config = BLUEPRINTS[f"gru on {name}"].config
    blueprint = Blueprint.of(config, describe_observation(env), describe_action(env))
    policy = NetworkPolicy(Checkpoint(blueprint, blueprint.create().state_dict()))
    policy.reset()
    action = policy.act(env.reset(seed=0)[0])
    assert env.action_space.contains(action)

"""The contract of every registered environment, whatever its task."""

import copy
import json
import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest
from support.environments import IDS, bits, same
from support.processes import run_python
from support.rendering import has_gl, needs_gl

from fleet_tools.envs.tool_use_env import ToolUseEnv

INFO = {
    "outcome",
    "success",
    "is_success",
    "success_once",
    "progress",
    "verdicts",
    "forces",
    "limits",
    "contact_metrics",
}
SMALL = {"camera_size": [64, 48], "cloud_size": [40, 30]}
STATE: dict[str, Any] = {}
IMAGES: list[dict[str, Any]] = [
    {"obs_mode": "point_cloud", "sensors": "active_stereo", **SMALL},  # which err, and are late
    {"obs_mode": "rgbd", **SMALL},
]

pytestmark = pytest.mark.parametrize("environment_id", IDS)


@pytest.fixture(name="env")
def _env(make, environment_id):
    return make(environment_id)


@pytest.fixture(
    name="env_kwargs",
    params=[STATE, *(pytest.param(kwargs, marks=needs_gl) for kwargs in IMAGES)],
    ids=lambda kwargs: kwargs.get("obs_mode", "state"),
)
def _env_kwargs(request):
    return request.param


@pytest.fixture(name="observing")
def _observing(make, environment_id, env_kwargs):
    """An environment of each observation mode."""
    return make(environment_id, **env_kwargs)


def actions(seed: int, steps: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (steps, 6)).astype(np.float32)


def episode(env: ToolUseEnv, seed: int) -> list[tuple]:
    """Runs random actions; returns observation, reward, ends, info and digest of each step."""
    observation, info = env.reset(seed=seed)
    trace: list[tuple] = [(observation, 0.0, False, False, info, env.state_digest())]
    for action in actions(seed):
        trace.append((*env.step(action), env.state_digest()))
    return trace


@pytest.fixture(scope="module", name="first_episode")
def _first_episode(make) -> Callable[..., list[tuple]]:
    """A function that returns the first episode, of seed 5, in an environment."""

    @cache
    def of(environment_id: str, env_kwargs: str) -> list[tuple]:
        return episode(make(environment_id, **json.loads(env_kwargs)), 5)

    return lambda environment_id, env_kwargs=STATE: of(environment_id, json.dumps(env_kwargs))


OTHER_PROCESS = """
import json, sys
sys.path[:0] = sys.argv[1:3]
from fleet_tools.envs.tool_use_env import unwrap
from support.environments import bits
from test_contract import episode
import gymnasium
def trace(environment_id, kwargs):
    return bits(episode(unwrap(gymnasium.make(environment_id, **json.loads(kwargs))), 5))
print(json.dumps([trace(*each) for each in json.loads(sys.argv[3])]))
"""


@pytest.fixture(scope="module", name="elsewhere")
def _elsewhere(request) -> dict[tuple[str, str], list[list[Any]]]:
    """The bits of the first episodes of all environments tested here, from one other process."""
    configurations = {
        (item.callspec.params["environment_id"], json.dumps(item.callspec.params["env_kwargs"]))
        for item in request.session.items
        if "elsewhere" in item.fixturenames and (has_gl() or not item.callspec.params["env_kwargs"])
    }
    folder, listed = request.path.parent, sorted(configurations)
    traces = run_python(OTHER_PROCESS, str(folder), str(folder.parent), json.dumps(listed))
    return dict(zip(listed, traces, strict=True))


def test_same_seed_same_bits_after_any_history(
    observing, environment_id, env_kwargs, first_episode
):
    first = bits(first_episode(environment_id, env_kwargs))
    assert bits(episode(observing, 6)) != first
    observing.reset(seed=8)
    observing.step(actions(8)[0])
    assert bits(episode(observing, 5)) == first


def test_same_seed_same_bits_in_another_process(
    environment_id, env_kwargs, first_episode, elsewhere
):
    here = bits(first_episode(environment_id, env_kwargs))
    key = environment_id, json.dumps(env_kwargs)
    assert elsewhere[key] == json.loads(json.dumps(here))


def test_different_seeds_give_different_episodes(env, environment_id, first_episode):
    first, second = bits(first_episode(environment_id)), bits(episode(env, 1))
    assert all(here[0] != there[0] for here, there in zip(first, second, strict=True))
    assert len({entry[-1] for entry in first + second}) == len(first) + len(second)


def test_observations_lie_in_their_space(observing, environment_id, env_kwargs, first_episode):
    for observation, *_ in first_episode(environment_id, env_kwargs):
        assert observing.observation_space.contains(observation)
        for name, value in observation.items():
            measured = (
                value[np.isfinite(value)] if observing.features[name].kind == "depth" else value
            )
            assert np.isfinite(measured).all(), name


def test_observations_share_no_memory(environment_id, env_kwargs, first_episode):
    trace = first_episode(environment_id, env_kwargs)
    arrays = [value for observation, *_ in trace for value in observation.values()]
    for i, array in enumerate(arrays):
        assert not any(np.shares_memory(array, other) for other in arrays[:i])


def test_later_changes_of_observations_and_actions_have_no_effect(
    env, environment_id, first_episode
):
    expected = bits(first_episode(environment_id))
    observation, _ = env.reset(seed=5)
    for action, entry in zip(actions(5), expected[1:], strict=True):
        for value in observation.values():
            value[:] = np.nan
        given = action.copy()
        observation = env.step(given)[0]
        np.testing.assert_array_equal(given, action)
        given[:] = np.nan
        assert env.state_digest() == entry[-1]
        assert bits([(observation,)])[0][0] == entry[0]


def test_info_describes_every_step(env, environment_id, first_episode):
    (*_, info, _), *steps = first_episode(environment_id)
    assert set(info) == INFO
    for *_, reward, terminated, truncated, info, _ in steps:
        assert type(reward) is float
        assert type(terminated) is bool and type(truncated) is bool
        assert set(info) == INFO | {"action", "action_clipped"}
        assert info["outcome"] == "running"
        for name in ("success", "is_success", "success_once", "action_clipped"):
            assert type(info[name]) is bool, name
        assert env.action_space.contains(info["action"])
        assert 0.0 <= info["progress"] <= 1.0


def test_success_means_that_every_predicate_holds(env):
    env.reset(seed=4)
    for action in actions(4, 2):
        info = env.step(action)[-1]
        verdicts = env.verdicts()
        assert len(verdicts) == len(env.task.success)
        assert info["success"] == all(verdict.holds for verdict in verdicts.values())


def test_the_action_space_is_that_of_the_contract(env):
    assert env.action_space == gymnasium.spaces.Box(-1, 1, (6,), np.float32)


def test_copied_and_pickled_environments_continue_bit_for_bit(observing):
    observing.reset(seed=1)
    last = observing.step(actions(1)[0])[0]
    state = pickle.loads(pickle.dumps(copy.deepcopy(observing.get_state())))
    copies = [copy.deepcopy(observing), pickle.loads(pickle.dumps(observing))]
    copies.append(copy.deepcopy(observing))
    copies[-1].reset(seed=2)
    assert same(copies[-1].set_state(state), last)
    copies[-1].np_random = copy.deepcopy(observing.np_random)
    futures = []
    for env in (observing, *copies):
        trace = [(*env.step(action), env.state_digest()) for action in actions(9, 3)]
        futures.append(bits([(env.reset()), *trace]))
        if env is not observing:
            env.close()
    assert futures[1:] == 3 * futures[:1]


def test_scenes_restore_episodes(env, environment_id, first_episode):
    expected = first_episode(environment_id)
    env.reset(seed=5)
    scene = env.scene
    for given in (scene, json.loads(scene.to_json())):
        env.reset(seed=1)
        observation, _ = env.reset(options={"scene": given})
        assert env.scene == scene and same(observation, expected[0][0])
    for action, entry in zip(actions(5), expected[1:], strict=True):
        assert same(env.step(action)[0], entry[0])


@needs_gl
def test_images_are_not_blank(make, environment_id):
    env = make(environment_id, render_mode="rgb_array")
    env.reset(seed=0)
    image = env.render()
    assert (image.shape, image.dtype) == ((480, 640, 3), np.uint8)
    assert image.std(axis=(0, 1)).min() > 5.0


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vector_environments_equal_single_ones(env, environment_id, mode, first_episode):
    kwargs = {"context": "spawn"} if mode == "async" else {}
    vector = gymnasium.make_vec(environment_id, 2, vectorization_mode=mode, vector_kwargs=kwargs)
    try:
        batches, infos = [vector.reset(seed=[5, 4])[0]], {}  # pyright: ignore[reportArgumentType]
        for pair in zip(actions(5), actions(4), strict=True):
            observation, *_, infos = vector.step(np.stack(pair))
            batches.append(observation)
    finally:
        vector.close()
    forces = infos["forces"]
    assert forces["tool_force_N"].shape == forces["tool_moment_Nm"].shape == (2, 3)
    impulses = {k: v for k, v in forces["object_joint_impulse"].items() if k[0] != "_"}
    assert all(each.shape == (2,) for each in impulses.values())
    for index, trace in enumerate((first_episode(environment_id), episode(env, 4))):
        for batch, (observation, *_) in zip(batches, trace, strict=True):
            assert same({key: value[index] for key, value in batch.items()}, observation)

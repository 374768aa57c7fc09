"""What every registered environment keeps, whatever its task."""

import copy
import json
import pickle

import gymnasium
import numpy as np
import pytest
from conftest import IDS, needs_gl, run_python, same

from fleet_tools.errors import EpisodeOverError, FleetToolsError, InvalidActionError

INFO = {"outcome", "success", "is_success", "success_once", "progress", "forces"}

pytestmark = pytest.mark.parametrize("environment_id", IDS)


SMALL = {"camera_size": [64, 48], "cloud_size": [40, 30]}
MODES = [{}, {"obs_mode": "point_cloud", **SMALL}, {"obs_mode": "rgbd", **SMALL}]


@pytest.fixture(name="env")
def _env(make, environment_id):
    return make(environment_id)


@pytest.fixture(
    name="keywords",
    params=[MODES[0], *(pytest.param(mode, marks=needs_gl) for mode in MODES[1:])],
    ids=lambda keywords: keywords.get("obs_mode", "state"),
)
def _keywords(request):
    return request.param


@pytest.fixture(name="seeing")
def _seeing(make, environment_id, keywords):
    """An environment of each mode of observation."""
    return make(environment_id, **keywords)


def actions(seed, steps=4):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, 6)).astype(np.float32)


def episode(env, seed):
    """Every bit of an episode of random actions: observations, rewards, ends, digests."""
    observation, info = env.reset(seed=seed)
    trace = [(observation, 0.0, False, False, info, env.unwrapped.state_digest())]
    for action in actions(seed):
        trace.append((*env.step(action), env.unwrapped.state_digest()))
    return trace


def bits(trace):
    return [[plain(part) for part in entry] for entry in trace]


def plain(part):
    if isinstance(part, dict):
        return {key: plain(value) for key, value in part.items()}
    return part.tobytes().hex() if isinstance(part, np.ndarray) else part


OTHER_PROCESS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import gymnasium, fleet_tools
from test_contract import bits, episode
env = gymnasium.make(sys.argv[2], **json.loads(sys.argv[4]))
print(json.dumps(bits(episode(env, int(sys.argv[3])))))
"""


def test_same_seed_same_bits_after_any_history(seeing):
    first = bits(episode(seeing, 5))
    for seed in (6, 5, 7):
        again = bits(episode(seeing, seed))
        assert (again == first) == (seed == 5)
    seeing.reset(seed=8)
    seeing.step(actions(8)[0])
    assert bits(episode(seeing, 5)) == first


def test_same_seed_same_bits_in_another_process(seeing, environment_id, keywords, request):
    here = json.loads(json.dumps(bits(episode(seeing, 5))))
    folder = str(request.path.parent)
    assert run_python(OTHER_PROCESS, folder, environment_id, "5", json.dumps(keywords)) == here


def test_different_seeds_begin_and_go_on_differently(env):
    first, second = bits(episode(env, 0)), bits(episode(env, 1))
    assert all(here[0] != there[0] for here, there in zip(first, second, strict=True))
    assert len({entry[-1] for entry in first + second}) == len(first) + len(second)


def test_observations_lie_in_their_space(seeing):
    for observation, *_ in episode(seeing, 2):
        assert seeing.observation_space.contains(observation)
        for name, value in observation.items():
            measured = value[np.isfinite(value)] if name.endswith("_depth") else value
            assert np.isfinite(measured).all(), name


def test_observations_share_no_memory(seeing):
    observations = [observation for observation, *_ in episode(seeing, 2)]
    arrays = [value for observation in observations for value in observation.values()]
    for i, array in enumerate(arrays):
        assert not any(np.shares_memory(array, other) for other in arrays[:i])


def test_what_is_done_to_observations_and_actions_afterwards_does_not_matter(env):
    expected = bits(episode(env, 3))
    observation, _ = env.reset(seed=3)
    for action, entry in zip(actions(3), expected[1:], strict=True):
        for value in observation.values():
            value[:] = np.nan
        given = action.copy()
        observation = env.step(given)[0]
        np.testing.assert_array_equal(given, action)
        given[:] = np.nan
        assert env.state_digest() == entry[-1]
        assert bits([(observation,)])[0][0] == entry[0]


def test_every_step_says_how_the_episode_stands(env):
    (*_, info, _), *steps = episode(env, 4)
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


def test_success_is_that_every_predicate_holds(env):
    env.reset(seed=4)
    for action in actions(4):
        info = env.step(action)[-1]
        verdicts = env.verdicts()
        assert len(verdicts) == len(env.task.success)
        assert info["success"] == all(verdict.holds for verdict in verdicts.values())


def test_the_action_space_is_the_contracts(env):
    assert env.action_space == gymnasium.spaces.Box(-1, 1, (6,), np.float32)


@pytest.mark.parametrize(
    "action",
    [
        np.full(6, np.nan, np.float32),
        np.full(6, np.inf, np.float32),
        np.zeros(7, np.float32),
        np.zeros(6, np.int64),
    ],
    ids=["nan", "inf", "shape", "dtype"],
)
def test_bad_actions_are_refused_with_the_state_untouched(env, action):
    env.reset(seed=0)
    before = env.state_digest()
    with pytest.raises(InvalidActionError):
        env.step(action)
    assert env.state_digest() == before


def test_bad_options_are_refused_with_the_state_untouched(env):
    env.reset(seed=0)
    before = env.state_digest()
    for options in ({"scne": None}, {"scene": {}}, {"scene": {"task": "no such task"}}):
        with pytest.raises(FleetToolsError):
            env.reset(options=options)
        assert env.state_digest() == before


def test_states_branch_after_a_trip_through_pickle(seeing):
    seeing.reset(seed=1)
    seeing.step(actions(1)[0])
    state = seeing.get_state()
    futures = []
    for copied in (state, copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        seeing.reset(seed=2)
        observation = seeing.set_state(copied)
        future = [(seeing.step(action)[0], seeing.state_digest()) for action in actions(9)]
        futures.append([bits([(observation,)]), bits(future)])
    assert futures[0] == futures[1] == futures[2]


def test_scenes_restore_episodes(env):
    expected = episode(env, 6)
    scene = json.loads(env.scene.to_json())
    env.reset(seed=1)
    observation, _ = env.reset(options={"scene": scene})
    assert same(observation, expected[0][0])
    for action, entry in zip(actions(6), expected[1:], strict=True):
        assert same(env.step(action)[0], entry[0])


def test_episodes_end_at_the_specs_limit_by_name(environment_id):
    env = gymnasium.make(environment_id, max_episode_steps=2)
    for _ in range(2):  # the second episode as the first
        env.reset(seed=0)
        ends = [env.step(np.zeros(6, np.float32)) for _ in range(2)]
        assert [truncated for *_, truncated, _ in ends] == [False, True]
        assert [info["outcome"] for *_, info in ends] == ["running", "time_limit"]
    with pytest.raises(EpisodeOverError):
        env.step(np.zeros(6, np.float32))


@needs_gl
def test_pictures_are_not_blank(make, environment_id):
    env = make(environment_id, render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert (picture.shape, picture.dtype) == ((480, 640, 3), np.uint8)
    assert picture.std(axis=(0, 1)).min() > 5.0


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vector_environments_are_the_environments(env, environment_id, mode):
    context = {"context": "spawn"} if mode == "async" else {}
    vector = gymnasium.make_vec(
        environment_id, num_envs=2, vectorization_mode=mode, vector_kwargs=context
    )
    try:
        together = [vector.reset(seed=[3, 4])[0]]
        together += [
            vector.step(np.stack(pair))[0] for pair in zip(actions(3), actions(4), strict=True)
        ]
    finally:
        vector.close()
    for index, seed in enumerate((3, 4)):
        alone = [observation for observation, *_ in episode(env, seed)]
        for batch, observation in zip(together, alone, strict=True):
            assert same({key: value[index] for key, value in batch.items()}, observation)

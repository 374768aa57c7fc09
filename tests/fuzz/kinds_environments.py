"""Inputs of environments: actions, arguments of the constructor and of `reset`."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fleet_tools.config.tasks import task_names
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import EpisodeOverError, InvalidActionError
from fleet_tools.robot.arm import DEFAULT_ROBOT, LIGHT, load_robot
from fleet_tools.sim.scene import Scene
from fuzz.kernel import Subject, require, require_same_after_json
from fuzz.mutations import changed_data, nudged_data, pick, scalar

PAIR = {"tool": "claw", "object": "round_nail"}
"""Models that are quick to reset."""


def actions(folder: Path) -> Subject:
    """Actions to `step`."""
    env = EnvSpec.of(task="hammer", **PAIR).make_tool_use()

    def step(action: Any) -> Any:
        digest = env.state_digest()
        try:
            return env.step(action)
        except EpisodeOverError:
            env.reset(seed=1)
            return env.step(action)
        except InvalidActionError:
            require(env.state_digest() == digest, "a refused action changed the state")
            raise

    def check(action: Any, result: Any) -> None:
        observation, reward, _, _, info = result
        given = np.asarray(action)
        require(given.shape == (6,) and given.dtype.kind in "fiu", "not six numbers")
        require(np.isfinite(given).all() and not np.ma.is_masked(action), "not finite")
        expected = np.clip(given, -1, 1).astype(np.float32)
        require(np.array_equal(info["action"], expected), "another action was executed")
        require(np.isfinite(reward), f"the reward is {reward}")
        _check_observation(env, observation)

    env.reset(seed=0)
    return Subject(_action, step, check)


def constructor(folder: Path) -> Subject:
    """Arguments of the constructor."""

    def make(generator: np.random.Generator) -> dict[str, Any]:
        given: dict[str, Any] = {"task": pick(generator, task_names())}
        for _ in range(int(generator.integers(1, 4))):
            name = pick(generator, (*LEGAL, *LEGAL, "no_such_argument"))
            examples = EXAMPLES.get(name, ())
            odd = generator.integers(3) > 0 or not examples
            given[name] = _odd(generator, examples) if odd else pick(generator, examples)
        return given

    def read(given: dict[str, Any]) -> ToolUseEnv:
        env = EnvSpec.of(**given).make_tool_use()
        env.close()
        return env

    def check(given: dict[str, Any], env: ToolUseEnv) -> None:
        for name, value in given.items():
            value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
            require(LEGAL[name](value), f"{name}={value!r}")
        for space in env.observation_space.values():  # pyright: ignore[reportAttributeAccessIssue]
            require(min(space.shape, default=1) > 0, f"a space of the shape {space.shape}")

    return Subject(make, read, check)


def resets(folder: Path) -> Subject:
    """Arguments of `reset`, most of them scenes."""
    env = EnvSpec.of(task="hammer", **PAIR).make_tool_use()
    scenes = []
    for seed in range(4):
        env.reset(seed=seed)
        scenes.append(json.loads(env.scene.to_json()))

    def make(generator: np.random.Generator) -> dict[str, Any]:
        scene = pick(generator, scenes)
        match int(generator.integers(10)):
            case 0:
                return {"seed": scalar(generator)}
            case 1:
                return {"options": _odd(generator, [{"scene": scene}])}
            case 2 | 3 | 4 | 5:
                return {"options": {"scene": nudged_data(scene, generator)}}
        return {"options": {"scene": changed_data(scene, generator)}}

    def read(given: dict[str, Any]) -> Any:
        digest = env.state_digest()
        try:
            return env.reset(**given)[0], env.scene
        except Exception:
            require(_digest(env) in (digest, None), "a refused reset changed the episode")
            if _digest(env) is None:
                env.reset(seed=0)
            raise

    def check(given: dict[str, Any], result: tuple[Any, Scene]) -> None:
        observation, scene = result
        _check_observation(env, observation)
        options = given.get("options") or {}
        if options.get("scene") is not None:
            require(scene == Scene.model_validate(options["scene"]), "another scene")
        require_same_after_json(scene)

    return Subject(make, read, check)


def _digest(env: ToolUseEnv) -> int | None:
    try:
        return env.state_digest()
    except EpisodeOverError:
        return None


def _check_observation(env: ToolUseEnv, observation: Mapping[str, np.ndarray]) -> None:
    require(env.observation_space.contains(observation), "an observation out of its space")
    for name, value in observation.items():
        require(np.isfinite(value).all(), f"{name} is not finite")


def _action(generator: np.random.Generator) -> Any:
    """Makes a valid action, or one with wrong entries, a wrong type, shape or memory."""
    action: Any = generator.uniform(-1.5, 1.5, 6).astype(np.float32)
    match int(generator.integers(9)):
        case 0:
            action[int(generator.integers(6))] = pick(
                generator, (np.nan, np.inf, -np.inf, 1e38, -1e-45, 0.0)
            )
        case 1:
            dtypes = ("f2", "f8", "g", "i4", "u8", "?", "c8", "O", "U8", "S4", ">f4", "M8[s]", "V4")
            try:
                action = action.astype(pick(generator, dtypes))
            except TypeError:
                action = None
        case 2:
            shapes = ((1, 6), (6, 1), (2, 3), (0,), (3,), (7,), (), (6, 6), (10**6,))
            action = np.resize(action, pick(generator, shapes))
        case 3:
            action = pick(generator, (list, tuple, set, memoryview, np.matrix, iter, repr))(action)
        case 4:
            mask = generator.integers(0, 2, 6).astype(bool)
            action = np.ma.masked_array(action, mask if generator.integers(2) else False)
        case 5:
            action = np.resize(action, 12)[::2] if generator.integers(2) else action[::-1]
            action.flags.writeable = bool(generator.integers(2))
        case 6:
            action = [scalar(generator) if generator.integers(3) == 0 else 0.5 for _ in range(6)]
        case 7:
            action = scalar(generator)
    return action


class _Odd:
    """An object that raises an error of its own at any question."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __len__(self) -> int:
        raise RuntimeError("len")


def _odd(generator: np.random.Generator, examples: Any) -> Any:
    """Makes a value of the wrong type, or a damaged example."""
    match int(generator.integers(5)):
        case 0:
            return pick(generator, (object(), len, np.zeros(2), np.array("x"), b"x", {1}, _Odd()))
        case 1:
            return pick(generator, (np.float64(3), np.int64(2), np.str_("state"), 1j, range(2)))
    example = pick(generator, examples) if examples else None
    return (
        changed_data(example, generator) if isinstance(example, dict | list) else scalar(generator)
    )


_TOOLS = ("claw", "club")
EXAMPLES: dict[str, tuple[Any, ...]] = {
    "task": ("hammer", "knife"),
    "obs_mode": ("state", "multitask_state", "point_cloud", "rgbd"),
    "split": ("train", "unseen_pairs", "unseen_tools", "unseen_objects", "all"),
    "tool": (None, *_TOOLS),
    "object": (None, "round_nail"),
    "randomization": ("on", "off", {"object_pose": False}),
    "reward": ("sparse", "dense"),
    "render_mode": (None, "rgb_array"),
    "robot": (DEFAULT_ROBOT,),
    "robot_visuals": (LIGHT, *load_robot().visuals),
    "camera_size": ([64, 48], (320, 240)),
    "render_size": ([64, 48], (320, 240)),
    "channels": (["rgb"], ["depth", "rgb"]),
    "cloud_size": ([40, 30], (1, 1)),
    "cloud_sampling": ("farthest", "even"),
    "keypoint_rows": (8, 20),
}


def _one_of(name: str) -> Callable[[Any], bool]:
    return lambda value: any(value is each or value == each for each in EXAMPLES[name])


def _pair(most: int) -> Callable[[Any], bool]:
    def legal(value: Any) -> bool:
        numbers = list(value)
        return len(numbers) == 2 and all(type(each) is int and 0 < each <= most for each in numbers)

    return legal


LEGAL: dict[str, Callable[[Any], bool]] = {
    **{name: _one_of(name) for name in EXAMPLES},
    "task": lambda value: value in task_names(),
    "tool": lambda value: value is None or isinstance(value, str),
    "object": lambda value: value is None or isinstance(value, str),
    "randomization": lambda value: (
        value in ("on", "off") or all(isinstance(each, bool) for each in value.values())
    ),
    "camera_size": _pair(4096),
    "render_size": _pair(4096),
    "cloud_size": _pair(100_000),
    "keypoint_rows": lambda value: type(value) is int and 0 < value <= 1000,
    "channels": lambda value: (
        len(set(value)) == len(value) > 0 and set(value) <= {"rgb", "depth", "segmentation"}
    ),
}
"""By argument, what it may be; written apart from the code that checks it."""

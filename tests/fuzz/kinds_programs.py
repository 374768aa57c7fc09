"""Actions and arguments of environments, answers of confined policies, and command lines."""

import contextlib
import io
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from support.damage import damaged
from support.served_policies import hello

from fleet_tools import __main__ as programs
from fleet_tools.config.tasks import task_names
from fleet_tools.envs.array_spec import ACTION_STEPS
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import EpisodeOverError, FleetToolsError, InvalidActionError
from fleet_tools.policies.array_codec import decode, encode
from fleet_tools.policies.policy_client import PolicyChannel, PolicyClient
from fleet_tools.policies.wire_messages import FailureCode, failure
from fleet_tools.robot.arm import DEFAULT_ROBOT, LIGHT, load_robot
from fleet_tools.sim.scene import Scene
from fleet_tools.studio.checking.program import load, read_model
from fuzz.mutations import changed_data, changed_number, changed_text, nudged_data, pick, scalar
from fuzz.running import Subject, require, require_same_after_json

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
        apart = np.abs(info["action"] - np.clip(given.astype(float), -1, 1)).max()
        require(apart <= 0.5 / ACTION_STEPS, "another action was executed")
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


class _ScriptedChannel(PolicyChannel):
    """Gives a client what a script has."""

    def __init__(self, answers: list[bytes | str]) -> None:
        super().__init__()
        self._answers = iter(answers)

    def send(self, content: bytes) -> None:
        decode(content)

    def receive(self, timeout_s: float | None) -> bytes | str:
        try:
            return next(self._answers)
        except StopIteration:
            raise EOFError from None

    def reason(self, error: Exception) -> str:
        return str(error)

    def told(self, code: FailureCode, why: str) -> str:
        return why


def answers(folder: Path) -> Subject:
    """Answers of confined policies."""
    actions = [np.zeros(6, np.float32), np.arange(6.0), np.zeros((2, 3), np.int64), np.zeros(0)]

    def make(generator: np.random.Generator) -> list[bytes | str]:
        script: list[dict[str, Any]] = [
            hello().model_dump(mode="json"),
            {"number": 0},
            {"number": 1, "actions": pick(generator, actions)[None]},
            {"number": 2, "info": json.dumps({"planning_seconds": 0.5, "words": ["a", None]})},
        ]
        content: list[bytes | str] = [encode(each) for each in script]
        at = int(generator.integers(len(content)))
        content[at] = damaged(encode(script[at]), generator)
        if generator.random() < 0.2:
            text = changed_text(failure("policy", "it failed"), generator, ("full", ": ", "\0"))
            content.insert(int(generator.integers(5)), text)
        return content

    def read(content: list[bytes | str]) -> tuple[np.ndarray, dict]:
        client = PolicyClient(_ScriptedChannel(content), None, confined=True)
        client.reset()
        return client.act({"state": np.zeros(3)}), client.info()

    def check(content: list[bytes | str], found: tuple[np.ndarray, dict]) -> None:
        action, info = found
        require(action.dtype.kind in "biuf", f"an array of {action.dtype}")
        require(json.loads(json.dumps(info, allow_nan=False)) == info, "no plain data")

    return Subject(make, read, check)


def _run(words: list[str]) -> tuple[Any, str]:
    """Runs a program; returns its exit code, and what it prints.

    Raises:
        FleetToolsError: It says what is wrong, and its exit code is 1 or 2.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = programs.main(words)
        except SystemExit as end:
            code = end.code
    if code in (1, 2):
        require(err.getvalue().strip(), f"exit code {code} without a message")
        require("Traceback" not in err.getvalue(), "it prints a traceback")
        raise FleetToolsError(err.getvalue())
    return code, out.getvalue()


LINES = (
    "collect --task absent.yaml --episodes 3 --output out --workers 0",
    "replay absent --episodes 3 --seed 1 --within 0.1 --workers 0 --json",
    "dataset info absent",
    "dataset export absent --to minari --output out",
    "photograph absent --output out",
    "train --dataset absent --output out --epochs 2 --architecture gru --set body.width=8",
    "train --dataset absent --output out --keypoints --symmetry a.tool=2:b:c --architecture mlp",
    "evaluate --policy absent:policy --output out --protocol absent.yaml --scenes 2 --workers 0",
    "leaderboard verify absent --scenes 3 --seed 4",
    "merge absent.safetensors other.safetensors --method naive_average --output out",
    "attach-detector --policy absent.safetensors --reader other.safetensors --output out",
    "fleet absent.yaml --output out --workers 0",
    "experiment absent.yaml --output out",
    "assets import absent.obj --kind tool --family hammer --mass 0.5 --keypoint head=1,2,3",
    "assets check absent --scenes 0 --seed 3",
    "assets mend absent --json",
    "new-task hammer --output out --tool-family presser --object-family button",
    "view --dataset absent --episodes 1 --output out.mp4 --size 64x48 --camera third",
    "teleop --task absent.yaml --episodes 1 --output out --port 0",
    "serve absent.safetensors --port 0 --token-file absent",
    "label absent.obj --family hammer --output out --port 0",
    "reproduce absent --checkout absent --output out",
    "checkpoints get absent --source absent",
    "metaworld collect --task absent --episodes 1 --output out --workers 0",
)
NOT_TRIED = {
    "audit": "it trains; its readers are tried",
    "doctor": "it reads nothing",
}
"""Programs that command lines are not tried with, and why."""

_IMPORT = (
    "assets import base.obj --kind object --family nail --name mine --mass 0.5 --origin keep "
    "--keypoint tip=0,0,0.01 --moving part.obj --joint prismatic --joint-name slide "
    "--axis 0,0,1 --at 0,0,0 --limits=-0.02,0.01 --resistance 5 --moving-mass 0.1 "
    "--moving-keypoint head=0,0,0.05 --scale 1 --up z --pieces 4 --output out"
)
_WORDS = (
    *("--json", "--quiet", "--seed", "--episodes", "-h", "--", "-", "--no-check", "--set", "a=b"),
    *("=", "--workers", "-1", "0", "nan", "1e999", "99999999999999999999", "None", "True"),
    *("--split", "all", "--grasp=-0.1,0,0", "--scale", "1,2", "--keypoint", "--env", "obs_mode=x"),
    *("\0", "\n", "é", "\udcff", "/dev/null", "/", ".", "..", "~", "*", "--output=", "--x" * 100),
    *("@file", "{", "[1,2]", "'"),
)


def imports(folder: Path) -> Subject:
    """Command lines of imports of an object of two meshes with a joint."""
    trimesh.creation.box((0.04, 0.04, 0.03)).export(folder / "base.obj")
    trimesh.creation.cylinder(0.01, 0.06).export(folder / "part.obj")
    meshes = set(folder.iterdir())
    values = [n for n, word in enumerate(_IMPORT.split()) if n > 4 and not word.startswith("--")]

    def make(generator: np.random.Generator) -> list[str]:
        words: list[str] = [*_IMPORT.split()]
        for _ in range(int(generator.integers(3))):
            at = pick(generator, values)
            words[at] = changed_number(words[at], generator)
        if generator.integers(3) == 0:
            words[pick(generator, values)] = pick(generator, _VALUES)
        if generator.integers(3) == 0:
            words += [pick(generator, _OPTIONS), pick(generator, _VALUES)]
        return words

    def read(words: list[str]) -> Any:
        for made in set(folder.iterdir()) - meshes:
            shutil.rmtree(made)
        code, _ = _run(words)
        require(code == 0, f"the exit code is {code}")
        (labels,) = folder.glob("*/objects/*/*/keypoints.yaml")
        return load(labels.parent)[0], read_model(labels.parent)

    def check(words: list[str], found: Any) -> None:
        plant, model = found
        require(plant.num_positions() in (1, 8), f"{plant.num_positions()} positions")
        mass = plant.CalcTotalMass(plant.CreateDefaultContext())
        require(np.isfinite(mass) and mass > 0, f"the mass is {mass} kg")
        require(len(model.labels.keypoints) == 2, "other keypoints")

    return Subject(make, read, check)


_VALUES = (
    *("prismatic", "revolute", "x", "1,0,0", "0,0,0", "1e-9,0,0", "-90,90", "0,0", "1,-1", "nan"),
    *("auto", "mm", "base.obj", "part.obj", "head=0,0,0.05", "tip=9,9,9", "joint", "nail", "é", ""),
    *("1e-30", "1e30", "0", "-1", "center", "base", "hull", "refuse", "wood", "steel", "../x", "y"),
)
_OPTIONS = (
    *("--density", "--rigid", "--material", "--grasp"),
    *("--keypoint", "--moving-keypoint", "--fidelity", "--concavity", "--tolerance"),
    *("--voxel", "--kind", "--joint", "--limits", "--axis", "--height", "--size"),
)


def command_lines(folder: Path) -> Subject:
    """Command lines of programs, about files that do not exist."""

    def make(generator: np.random.Generator) -> list[str]:
        words = pick(generator, LINES).split()
        for _ in range(int(generator.integers(1, 4))):
            at = int(generator.integers(len(words) + 1))
            match int(generator.integers(5)):
                case 0 if words:
                    del words[at : at + 1]
                case 1 if at < len(words):
                    words[at] = pick(generator, _WORDS)
                case 2 if words:
                    words.insert(at, pick(generator, words))
                case 3 if at < len(words):
                    words[at] = words[at][: int(generator.integers(len(words[at]) + 1))]
                case _:
                    words.insert(at, pick(generator, _WORDS))
        return words

    def check(words: list[str], result: tuple[Any, str]) -> None:
        code, printed = result
        require(code == 0, f"the exit code is {code}")
        needs_files = words[0] != "new-task" and not {"-h", "--help", "--version"} & set(words)
        require(not needs_files, "it succeeds without its files")
        require(printed, "it prints nothing")

    return Subject(make, _run, check)

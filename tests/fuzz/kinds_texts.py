"""Texts: task files, configurations, models, labels, names, notations and variables."""

import json
import os
import re
import shutil
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pydantic
import yaml
from pydrake.multibody.plant import MultibodyPlant
from support.arms import six_joints
from support.damage import damaged
from support.processes import ROOT
from support.task_files import whole_task
from tyro.constructors import PrimitiveConstructorSpec

from fleet_tools.baselines import model_files
from fleet_tools.baselines.experiments.fleets import ToolUse
from fleet_tools.baselines.experiments.form import Experiment, load_experiment, planned_runs
from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig, read_policy_config
from fleet_tools.baselines.policies.part_configs import PointNetConfig
from fleet_tools.blender import VARIABLE
from fleet_tools.config.file_access import assets_root, task_configs_root
from fleet_tools.config.geometry import Pose
from fleet_tools.config.tasks import TaskConfig, load_task, task_names
from fleet_tools.config.values import Value, load_yaml
from fleet_tools.dataset import Dataset
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import ConfigError, FleetToolsError
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.evaluation.result_folder import load_evaluation
from fleet_tools.parallel import cluster
from fleet_tools.perception.display import MESHCAT_HOST, open_meshcat
from fleet_tools.policies.confined import VARIABLES as POLICY_VARIABLES
from fleet_tools.policies.confined import policy_environment
from fleet_tools.policies.released import CHECKPOINTS, find_file
from fleet_tools.policies.server_access import TOKEN_VARIABLE, read_token, require_url
from fleet_tools.policies.sources import find_policy
from fleet_tools.robot.arm import Arm
from fleet_tools.robot.arm_model import joint_limits
from fleet_tools.sim.catalog import load_model
from fleet_tools.sim.own_models import load_admitted_robot
from fleet_tools.studio.checking.program import load, read_model
from fleet_tools.studio.importing import settings as argument_types
from fleet_tools.studio.importing.settings import check_model_name
from fleet_tools.studio.labelling.labels import Draft, ModelLabels, read_draft, write_draft
from fleet_tools.utils.drake_release import ANY_RELEASE, require_tested_release
from fleet_tools.utils.imports import TRUSTED_MODULES, is_trusted, load_user_object
from fleet_tools.utils.option_parser import key_value
from fuzz.kinds_files import with_one_file
from fuzz.mutations import (
    XML_TOKENS,
    YAML_TOKENS,
    changed_data,
    changed_json,
    changed_number,
    changed_text,
    nudged_data,
    pick,
    scalar,
)
from fuzz.running import Subject, require, require_same_after_json

Maker = Callable[[np.random.Generator], bytes]


def changed_yaml(texts: Sequence[str]) -> Maker:
    """Returns a function that damages one of some YAML texts: its data, its lines or its bytes."""

    def make(generator: np.random.Generator) -> bytes:
        text = pick(generator, texts)
        match int(generator.integers(5)):
            case 0:
                return damaged(text.encode(), generator)
            case 1 | 2:
                return changed_text(text, generator, YAML_TOKENS).encode(errors="surrogatepass")
        data = changed_data(yaml.safe_load(text), generator)
        try:
            return yaml.safe_dump(data, allow_unicode=bool(generator.integers(2))).encode()
        except (ValueError, yaml.YAMLError):  # surrogates
            return json.dumps(data).encode()

    return make


def _texts(paths: Sequence[Path]) -> list[str]:
    return [path.read_text() for path in paths]


def _same_after_json(given: Any, value: Value) -> None:
    require_same_after_json(value)


def tasks(folder: Path) -> Subject:
    """Task files, read."""
    make = changed_yaml(
        [
            *_texts([*task_configs_root().glob("*.yaml"), ROOT / "examples/basket/task.yaml"]),
            yaml.safe_dump(whole_task("wrench"), sort_keys=False),
        ]
    )
    path = folder / "task.yaml"

    def read(content: bytes) -> TaskConfig:
        path.write_bytes(content)
        return load_task(str(path))

    return Subject(make, read, _same_after_json)


def tasks_run(folder: Path) -> Subject:
    """Task files with other numbers, in which an episode runs for a step."""
    whole = [whole_task(name) for name in task_names()]
    path = folder / "task.yaml"

    def make(generator: np.random.Generator) -> tuple[bytes, int]:
        data = nudged_data(pick(generator, whole), generator)
        return yaml.safe_dump(data).encode(), int(generator.integers(100))

    def read(given: tuple[bytes, int]) -> Any:
        path.write_bytes(given[0])
        env = EnvSpec.of(task=str(path)).make_tool_use()
        try:
            first, _ = env.reset(seed=given[1])
            second, reward, *_ = env.step(np.full(6, 0.5, np.float32))
            return env.observation_space, [first, second], reward
        finally:
            env.close()

    def check(given: tuple[bytes, int], result: Any) -> None:
        space, observations, reward = result
        require(np.isfinite(reward), f"the reward is {reward}")
        for observation in observations:
            require(space.contains(observation), "an observation out of its space")
            for name, value in observation.items():
                require(np.isfinite(value).all(), f"{name} is not finite")

    return Subject(make, read, check)


def configurations(folder: Path) -> Subject:
    """Files of fleets, experiments, protocols and their tasks, robots, architectures and scenes."""
    robot = six_joints(folder / "robot")
    shutil.copytree(ROOT / "examples/basket", folder / "basket")
    own_task = folder / "basket/task.yaml"
    own = {
        "name": "own",
        "version": 1,
        "description": "A task of one's own, and one of the package.",
        "tasks": ["hammer", "basket/task.yaml"],
        "splits": {"train": {"first_seed": 2**52, "scenes": 3}},
        "randomization": "on",
    }
    by_class = {
        FleetConfig: _texts([ROOT / "examples/fleet/hammer.yaml"]),
        Experiment: _texts([*(ROOT / "examples/fleet").glob("[sb]*.yaml")]),
        Protocol: [
            *_texts([*(task_configs_root() / "protocols").glob("*.yaml")]),
            yaml.safe_dump(own),
        ],
        PolicyConfig: [json.dumps(PolicyConfig(clouds=PointNetConfig()).model_dump(mode="json"))],
        TaskConfig: [own_task.read_text()],
        Arm: [robot.read_text()],
    }
    makers = {cls: changed_yaml(texts) for cls, texts in by_class.items()}
    path = folder / "configuration.yaml"
    as_json = folder / "configuration.json"
    whole_task = own_task.read_bytes()

    def make(generator: np.random.Generator) -> tuple[type[Value], bytes]:
        cls = pick(generator, tuple(makers))
        if cls is PolicyConfig:
            return cls, changed_json(pick(generator, by_class[cls]), generator)
        return cls, makers[cls](generator)

    def read(given: tuple[type[Value], bytes]) -> Value:
        cls, content = given
        path.write_bytes(content)
        if cls is PolicyConfig:
            as_json.write_bytes(content)
            return read_policy_config(str(as_json))
        if cls is Arm:
            robot.write_bytes(content)
            joint_limits(load_admitted_robot(str(robot)))
            return load_yaml(Arm, robot)
        if cls is TaskConfig:  # a protocol's
            own_task.write_bytes(content)
            path.write_text(yaml.safe_dump(own))
        try:
            if cls is Experiment:
                value = load_experiment(path)
            else:
                value = load_yaml(cls, path) if cls is FleetConfig else load_protocol(str(path))
        finally:
            own_task.write_bytes(whole_task)
        if isinstance(value, Experiment):
            arena = ToolUse(value.model_copy(update={"references": (), "data": ("data",)}))
            for run in planned_runs(value.model_copy(update={"references": (), "data": ("data",)})):
                arena.plan(run)
        if isinstance(value, Protocol):
            value.trials()
        return value

    return Subject(make, read, _same_after_json)


# --- Models ---------------------------------------------------------------------------------

URDF = """<?xml version="1.0"?>
<robot name="stick"><link name="hammer">
<inertial><origin xyz="0 0 0.1" rpy="0 0 0"/><mass value="0.5"/>
<inertia ixx="0.002" iyy="0.002" izz="0.0001" ixy="0" ixz="0" iyz="0"/></inertial>
<visual><origin xyz="0 0 0"/><geometry><cylinder radius="0.01" length="0.3"/></geometry></visual>
<collision name="rod"><origin xyz="0 0 0" rpy="0 1.5 0"/>
<geometry><cylinder radius="0.01" length="0.3"/></geometry></collision></link>
<link name="cap"><inertial><mass value="0.1"/>
<inertia ixx="0.001" iyy="0.001" izz="0.001" ixy="0" ixz="0" iyz="0"/></inertial>
<collision name="cap"><geometry><box size="0.02 0.02 0.02"/></geometry></collision></link>
<joint name="slide" type="prismatic"><parent link="hammer"/><child link="cap"/>
<origin xyz="0 0 0.15" rpy="0 0 0"/><axis xyz="0 0 1"/>
<limit lower="0" upper="0.1" effort="10" velocity="1"/><dynamics damping="1" friction="0"/></joint>
</robot>
"""


def models(folder: Path) -> Subject:
    """Models' SDFormat and URDF, loaded by Drake."""
    root = assets_root()
    sources = [root / "tools/hammer/claw", root / "objects/nail/round_nail"]
    copies = [shutil.copytree(path, folder / path.name) for path in sources]
    stick = shutil.copytree(copies[0], folder / "stick")
    (stick / "model.sdf").unlink()
    (stick / "model.urdf").write_text(URDF)
    whole = {path: path.read_text() for copy in (*copies, stick) for path in copy.glob("model.*df")}

    def make(generator: np.random.Generator) -> tuple[Path, bytes]:
        path = pick(generator, tuple(whole))
        return path, _changed_xml(whole[path], generator)

    def read(given: tuple[Path, bytes]) -> MultibodyPlant:
        path, content = given
        path.write_bytes(content)
        plant, _ = load(path.parent)
        return plant

    return Subject(make, read, _check_plant)


def labels(folder: Path) -> Subject:
    """Models' keypoints.yaml."""
    copy = shutil.copytree(assets_root() / "tools/hammer/claw", folder / "claw")
    whole = {"keypoints.yaml": (copy / "keypoints.yaml").read_bytes()}
    return with_one_file(copy, whole, lambda _: read_model(copy).labels, _same_after_json)


def drafts(folder: Path) -> Subject:
    """Files that keep labels while a person works."""
    path = folder / "mine.labels.yaml"
    keypoints = {"head": (0.16, 0.0, 0.05), "tail": (-0.1, 0.0, 0.0)}
    whole = ModelLabels(keypoints=keypoints, grasp=Pose(), mass=0.4, material="ash")
    write_draft(path, Draft(labels_of="mesh", labels=whole))
    draft = {path.name: path.read_bytes()}
    return with_one_file(folder, draft, lambda _: read_draft(path, "mesh"), _same_after_json)


def _changed_xml(text: str, generator: np.random.Generator) -> bytes:
    match int(generator.integers(8)):
        case 0:
            return damaged(text.encode(), generator)
        case 1:
            return changed_text(text, generator, XML_TOKENS).encode(errors="surrogatepass")
        case 2 | 3:  # an element removed, doubled or moved
            tags = list(re.finditer(r"<(\w[\w:]*)[^<>]*?(/>|>[^<>]*</\1>)", text))
            one, other = pick(generator, tags), pick(generator, tags)
            element = one.group() if generator.integers(2) else ""
            return (text[: other.start()] + element + text[other.end() :]).encode()
    for _ in range(int(generator.integers(1, 3))):
        text = changed_number(text, generator)
    return text.encode(errors="replace")


def _check_plant(given: Any, plant: MultibodyPlant) -> None:
    context = plant.CreateDefaultContext()
    mass = plant.CalcTotalMass(context)
    require(np.isfinite(mass) and mass > 0, f"the mass is {mass} kg")
    inertia = plant.CalcMassMatrixViaInverseDynamics(context)
    require(np.isfinite(inertia).all(), "the mass matrix is not finite")
    positions = plant.GetPositions(context)
    require(np.isfinite(positions).all(), "a joint position is not finite")


_PIECES = (
    *("claw", "expert", "hammer", "head=0.1,0,0.05", "m", "mm", "auto", "1,2,3", "0,0,0,0,0,90"),
    *("split=all", 'a=[1,"b"]', "ws://127.0.0.1:9", "wss://[::1]:9/x", "v1", "mlp", "body.width"),
    *("task.yaml", "json:loads", "dagger:", "module:", ":f", "a:b:c", "../..", "/dev/zero", "."),
    *("~", "~x", "\0", "\n", " ", "", "é", "e\u0301", "\udc80", "%", "%00", "#", "?", "=", ","),
    *("-", "--", "nan", "inf", "1e999", "9" * 400, "[" * 3000, "{", '"', "'", "x" * 5000, "C:\\x"),
    "\u202e",
)


def _word(generator: np.random.Generator) -> str:
    """Returns a word, mostly of known pieces."""
    if generator.integers(6) == 0:
        return str(scalar(generator))
    word = "".join(pick(generator, _PIECES) for _ in range(pick(generator, (1, 1, 1, 2, 3))))
    return changed_text(word, generator, _PIECES) if generator.integers(3) == 0 else word


def words(folder: Path) -> Subject:
    """Names of tasks, policies, protocols, functions, architectures and models, and notations."""
    readers: dict[str, Callable[[str], Any]] = {
        "task": load_task,
        "protocol": load_protocol,
        "policy": lambda word: require_url(word) if "wss" in word else find_policy(word),
        "address": require_url,
        "function": lambda word: load_user_object(word, "predicate", ConfigError),
        "architecture": read_policy_config,
        "setting": lambda word: read_policy_config("mlp", [key_value(word)]),
        "model": check_model_name,
        "tool": lambda word: load_model(Path(word), "tool"),
        "weights": lambda word: model_files.read_model(Path(word)),
        "checkpoint": lambda word: load_checkpoint(Path(word)),
        "dataset": Dataset,
        "result": lambda word: load_evaluation(Path(word)),
        "fleet": lambda word: load_yaml(FleetConfig, Path(word)),
        "--env": key_value,
    }
    for name, annotation in vars(argument_types).items():
        for each in getattr(annotation, "__metadata__", ()):
            if isinstance(each, PrimitiveConstructorSpec):
                readers[name] = lambda word, spec=each: spec.instance_from_str([word])

    def make(generator: np.random.Generator) -> tuple[str, str]:
        return pick(generator, tuple(readers)), _word(generator)

    def read(given: tuple[str, str]) -> Any:
        return readers[given[0]](given[1])

    def check(given: tuple[str, str], found: Any) -> None:
        reader, word = given
        match reader:
            case "model":
                require(found == word and set(word) <= _LETTERS, "a name of other characters")
            case "--env":
                require(word.startswith(f"{found[0]}="), "another key")
            case "function":
                require(callable(found), "no function")
        if reader.endswith("Argument"):
            json.dumps(pydantic.TypeAdapter(Any).dump_python(found, mode="json"), allow_nan=False)

    return Subject(make, read, check, (FleetToolsError, ValueError))


_LETTERS = {*string.ascii_letters, *string.digits, "_"}


VARIABLES: dict[str, Callable[[], Any]] = {
    TOKEN_VARIABLE: read_token,
    TRUSTED_MODULES: lambda: is_trusted("predicates:upright"),
    "RAY_ADDRESS": lambda: cluster.is_running(None),
    ANY_RELEASE: require_tested_release,
    MESHCAT_HOST: open_meshcat,
    CHECKPOINTS: lambda: find_file("bc_hammer"),
    POLICY_VARIABLES: policy_environment,
}
"""Readers of environment variables, by name."""
VARIABLES_NOT_TRIED = {VARIABLE: "a program of the user's own, which is run"}


def variables(folder: Path) -> Subject:
    """Environment variables that the package reads."""

    def make(generator: np.random.Generator) -> tuple[str, str]:
        name, word = pick(generator, tuple(VARIABLES)), _word(generator).replace("\0", "")
        odd = pick(generator, ("", "127.0.0.1", "::1", "*", str(folder), "x" * 32, word))
        return name, odd.encode(errors="surrogatepass").decode(errors="surrogateescape")

    def read(given: tuple[str, str]) -> Any:
        with mock.patch.dict(os.environ, {given[0]: given[1]}):
            return VARIABLES[given[0]]()

    def check(given: tuple[str, str], found: Any) -> None:
        name, word = given
        match name:
            case cls if cls == TOKEN_VARIABLE:
                require(found == word and len(found) >= 16, "another token")
            case cls if cls == MESHCAT_HOST:
                require(word in ("127.0.0.1", "::1", "*"), "it listens elsewhere")

    return Subject(make, read, check)

"""YAML files of tasks, fleets, experiments, protocols and models, and the models' XML."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydrake.multibody.plant import MultibodyPlant
from support.arms import six_joints
from support.damage import damaged
from support.processes import ROOT
from support.task_files import whole_task

from fleet_tools.baselines.experiments.fleets import ToolUse
from fleet_tools.baselines.experiments.form import Experiment, load_experiment, planned_runs
from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.policies.config import PolicyConfig, read_policy_config
from fleet_tools.baselines.policies.part_configs import PointNetConfig
from fleet_tools.config.file_access import assets_root, task_configs_root
from fleet_tools.config.geometry import Pose
from fleet_tools.config.tasks import TaskConfig, load_task, task_names
from fleet_tools.config.values import Value, load_yaml
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.robot.arm import Arm
from fleet_tools.robot.arm_model import joint_limits
from fleet_tools.sim.own_models import load_admitted_robot
from fleet_tools.sim.scene import Scene, sample_scene
from fleet_tools.studio.checking.program import load, read_model
from fleet_tools.studio.labelling.labels import Draft, ModelLabels, read_draft, write_draft
from fleet_tools.studio.photographs.photographer import read_scene_file
from fuzz.kernel import Subject, require, require_same_after_json
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
)

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
        Scene: [sample_scene(load_task(name), 0).to_json() for name in task_names()],
        TaskConfig: [own_task.read_text()],
        Arm: [robot.read_text()],
    }
    makers = {cls: changed_yaml(texts) for cls, texts in by_class.items()}
    path = folder / "configuration.yaml"
    as_json = folder / "configuration.json"
    whole_task = own_task.read_bytes()

    def make(generator: np.random.Generator) -> tuple[type[Value], bytes]:
        cls = pick(generator, tuple(makers))
        if cls in (PolicyConfig, Scene):
            return cls, changed_json(pick(generator, by_class[cls]), generator)
        return cls, makers[cls](generator)

    def read(given: tuple[type[Value], bytes]) -> Value:
        cls, content = given
        path.write_bytes(content)
        if cls in (PolicyConfig, Scene):
            as_json.write_bytes(content)
            if cls is Scene:
                return read_scene_file(as_json)
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

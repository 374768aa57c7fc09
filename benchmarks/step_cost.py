"""The times of a simulation step: whole, without attribution, and without controller, too.

Attribution of the object's motion to parts of the tool is what success by cause costs.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
from expert_steps import expert_steps
from pydrake.common.value import AbstractValue
from pydrake.systems.analysis import Simulator
from pydrake.systems.framework import Context, DiagramBuilder, EventStatus
from pydrake.systems.primitives import TrajectorySource
from pydrake.trajectories import PiecewisePolynomial
from timing import cpu_seconds

from fleet_tools.config.control import TIME_STEP
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.robot.arm import load_robot
from fleet_tools.robot.arm_model import ArmModel
from fleet_tools.robot.controller import Reference
from fleet_tools.sim import world as worlds
from fleet_tools.sim.apply_scene import apply_scene, read_defaults
from fleet_tools.sim.catalog import find_task_model
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import World
from fleet_tools.sim.world_state import Snapshot

if TYPE_CHECKING:
    from fleet_tools.config.tasks import TaskConfig
    from fleet_tools.sim.catalog import Model
    from fleet_tools.sim.scene import Scene


ROBOT = load_robot()

_REPETITIONS = 5
"""Runs of each control step, of which the fastest counts: other programs only slow it down."""


@dataclass(frozen=True)
class StepCost:
    """Processor times of a simulation step in contact.

    All three steps make the same motion with the same torques, to the last bit.

    Attributes:
        whole: Time of a step with controller and attribution, s.
        controlled: Time of a step with the controller only, s.
        bare: Time of a step without both, s.
        controlled_ratio: Of a step with the controller to one without both.
        whole_ratio: Of a step with both to one without both.
    """

    whole: float
    controlled: float
    bare: float
    controlled_ratio: float
    whole_ratio: float


def measure_steps(task: str, episodes: int) -> StepCost:
    """Measures control steps of the expert in contact.

    Times are the medians over control steps of the mean times of their simulation steps; ratios,
    the medians of the ratios in single control steps.

    Args:
        task: Name of a task, or path of a task file.
        episodes: Number of the expert's episodes.
    """
    env = EnvSpec.of(task=task).make_tool_use()
    seconds: list[np.ndarray] = []
    others: tuple[_BareWorld, _BareWorld] | None = None
    for _, action in expert_steps(env, range(episodes)):
        simulation = env.simulation  # a profile looks inside
        assert simulation is not None  # during an episode
        if others is None or others[0].scene != env.scene:
            others = _Controlled(env.task, env.scene), _Replayed(env.task, env.scene)
        before = simulation.snapshot()
        env.step(action)
        if not env.world_state().contacts:
            continue
        after = simulation.snapshot()
        times, torques = _commanded_torques(simulation, before, after)
        runs = []
        for _ in range(_REPETITIONS):
            simulation.restore(replace(before, reference=after.reference))
            whole = _step_seconds(simulation._simulator, times)
            for world in others:
                world.start(before, times, torques, after.reference)
            runs.append([whole, *(_step_seconds(world.simulator, times) for world in others)])
            for world in others:
                if world.state().tobytes() != simulation.snapshot().x.tobytes():
                    raise AssertionError(f"{task}: the same torques led to another state.")
        seconds.append(np.min(runs, axis=0))
        simulation.restore(after)
    env.close()
    each = np.array(seconds)
    ratios = np.median(each[:, :2] / each[:, 2:], axis=0)
    return StepCost(*map(float, np.median(each, axis=0)), *map(float, ratios[::-1]))


def _step_seconds(simulator: Simulator, times: np.ndarray) -> float:
    """Returns the mean processor time of simulation steps that begin at given times, s."""
    return cpu_seconds(lambda: simulator.AdvanceTo(times[-1])) / (len(times) - 1)


def _commanded_torques(
    simulation: Simulation, before: Snapshot, after: Snapshot
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the times (N,) and torques (n, N) of the controller between two snapshots."""
    plant, simulator = simulation.world.plant, simulation._simulator
    port = plant.get_net_actuation_output_port(simulation.world.arm)
    times: list[float] = []
    torques: list[np.ndarray] = []

    def record(root: Context) -> EventStatus:
        times.append(root.get_time())
        torques.append(port.Eval(plant.GetMyContextFromRoot(root)))
        return EventStatus.Succeeded()

    simulator.set_monitor(record)
    simulation.restore(replace(before, reference=after.reference))
    simulator.AdvanceTo(after.step / simulation.world.control_rate_hz)
    simulator.clear_monitor()
    return np.array(times), np.transpose(torques)


class _BareWorld(ABC):
    """The world of a scene, without attribution.

    Attributes:
        scene: The scene.
        simulator: Drake's simulator of the world.
    """

    def __init__(self, task: "TaskConfig", scene: "Scene") -> None:
        self.scene = scene
        tool = find_task_model(task, "tool", scene.tool)
        object = find_task_model(task, "object", scene.object)
        self._world = self._build(task.model_copy(update={"tool_parts": {}}), tool, object)
        self.simulator = Simulator(self._world.diagram)
        self._root = self.simulator.get_mutable_context()
        apply_scene(scene, self._world, read_defaults(self._world, self._root), self._root)
        self._context = self._world.plant.GetMyMutableContextFromRoot(self._root)

    def start(
        self, before: Snapshot, times: np.ndarray, torques: np.ndarray, reference: Reference
    ) -> None:
        """Prepares a control step.

        Args:
            before: State at its beginning.
            times: (N,), times of the simulation steps, s.
            torques: (n, N), torques of the arm in each, N m.
            reference: Reference of the controller.
        """
        self._command(times, torques, reference)
        self._root.SetTime(before.step / self._world.control_rate_hz)
        self._world.plant.SetPositionsAndVelocities(self._context, before.x)
        self.simulator.Initialize()

    def state(self) -> np.ndarray:
        """Returns positions and velocities of the plant."""
        return self._world.plant.GetPositionsAndVelocities(self._context)

    @abstractmethod
    def _build(self, task: "TaskConfig", tool: "Model", object: "Model") -> World: ...

    @abstractmethod
    def _command(self, times: np.ndarray, torques: np.ndarray, reference: Reference) -> None: ...


class _Controlled(_BareWorld):
    """A world whose controller follows the reference."""

    def _build(self, task: "TaskConfig", tool: "Model", object: "Model") -> World:
        return worlds.build_world(task, ROBOT, tool, object)

    def _command(self, times: np.ndarray, torques: np.ndarray, reference: Reference) -> None:
        port = self._world.diagram.GetInputPort("reference")
        port.FixValue(self._root, AbstractValue.Make(reference))


class _Replayed(_BareWorld):
    """A world without controller, in which the arm is given its torques."""

    def _build(self, task: "TaskConfig", tool: "Model", object: "Model") -> World:
        self._source = TrajectorySource(PiecewisePolynomial(np.zeros(ROBOT.num_joints)))

        def add_source(builder: DiagramBuilder, plant: Any, arm: Any, _: Any) -> tuple:
            builder.AddSystem(self._source)
            builder.Connect(self._source.get_output_port(), plant.get_actuation_input_port(arm))
            return ArmModel(ROBOT), None

        with patch.object(worlds, "_add_controller", add_source):
            return worlds.build_world(task, ROBOT, tool, object)

    def _command(self, times: np.ndarray, torques: np.ndarray, reference: Reference) -> None:
        early = times - TIME_STEP / 2  # whichever way times are rounded
        self._source.UpdateTrajectory(PiecewisePolynomial.ZeroOrderHold(early, torques))

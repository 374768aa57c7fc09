"""The time of a simulation step, and of the same step without controller and attribution.

Attribution of the object's motion to parts of the tool is what success by cause costs.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
from expert_steps import expert_steps
from pydrake.systems.analysis import Simulator
from pydrake.systems.framework import Context, DiagramBuilder, EventStatus
from pydrake.systems.primitives import TrajectorySource
from pydrake.trajectories import PiecewisePolynomial
from timing import cpu_seconds

from fleet_tools.envs.making import make_env
from fleet_tools.robot.arm_model import ArmModel
from fleet_tools.robot.panda import NUM_JOINTS
from fleet_tools.sim import world as worlds
from fleet_tools.sim.apply_scene import apply_scene, read_defaults
from fleet_tools.sim.simulation import CONTROL_RATE, Simulation
from fleet_tools.sim.snapshot import Snapshot
from fleet_tools.sim.task_models import find_task_model
from fleet_tools.sim.world import TIME_STEP, World

if TYPE_CHECKING:
    from fleet_tools.config.tasks import TaskConfig
    from fleet_tools.sim.scene import Scene


@dataclass(frozen=True)
class ControllerCost:
    """Median processor times of a simulation step in contact, s.

    Attributes:
        with_it: With the controller and the attribution.
        without: The same step, with the same torques, without both.
        ratio: Of the two.
    """

    with_it: float
    without: float
    ratio: float


def measure_controller(task: str, episodes: int) -> ControllerCost:
    """Measures control steps of the expert in contact, with the controller and without it.

    Without it, the arm is given the torques that the controller commanded, so that the motion and
    its contacts are the same to the last bit, as is checked.

    Args:
        task: Name of a task, or path of a task file.
        episodes: Number of the expert's episodes.
    """
    env = make_env(task=task)
    with_it: list[float] = []
    without: list[float] = []
    replay: _TorqueReplay | None = None
    for _, action in expert_steps(env, range(episodes)):
        simulation = env._simulation  # a profile looks inside
        assert simulation is not None  # during an episode
        if replay is None or replay.scene != env.scene:
            replay = _TorqueReplay(env.task, env.scene)
        before = simulation.snapshot()
        env.step(action)
        if not env.world_state().contacts:
            continue
        after = simulation.snapshot()
        times, torques = _commanded_torques(simulation, before, after)
        without += replay.step_seconds(before, times, torques)
        simulation.restore(replace(before, reference=after.reference))
        with_it += _step_seconds(simulation._simulator, times)
        if replay.state().tobytes() != simulation.snapshot().x.tobytes():
            raise AssertionError(f"{task}: the same torques led to another state.")
        simulation.restore(after)
    env.close()
    return ControllerCost(
        float(np.median(with_it)),
        float(np.median(without)),
        float(np.median(with_it) / np.median(without)),
    )


def _step_seconds(simulator: Simulator, times: np.ndarray) -> list[float]:
    """Returns the processor times between successive times of the simulation, s."""
    return [cpu_seconds(lambda end=end: simulator.AdvanceTo(end)) for end in times[1:]]


def _commanded_torques(
    simulation: Simulation, before: Snapshot, after: Snapshot
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the times (N,) and torques (7, N) of the controller between two snapshots."""
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
    simulator.AdvanceTo(after.step / CONTROL_RATE)
    simulator.clear_monitor()
    return np.array(times), np.transpose(torques)


class _TorqueReplay:
    """The world of a scene, in which torques of the arm are given."""

    def __init__(self, task: "TaskConfig", scene: "Scene") -> None:
        self.scene = scene
        tool = find_task_model(task, "tool", scene.tool)
        object = find_task_model(task, "object", scene.object)
        self._source = TrajectorySource(PiecewisePolynomial(np.zeros(NUM_JOINTS)))

        def add_source(builder: DiagramBuilder, plant: Any, arm: Any, _: Any) -> tuple:
            builder.AddSystem(self._source)
            builder.Connect(self._source.get_output_port(), plant.get_actuation_input_port(arm))
            return ArmModel(), None

        with patch.object(worlds, "_add_controller", add_source):
            bare = task.model_copy(update={"tool_parts": {}})  # without attribution, too
            self._world: World = worlds.build_world(bare, tool, object)
        self._simulator = Simulator(self._world.diagram)
        self._root = self._simulator.get_mutable_context()
        apply_scene(scene, self._world, read_defaults(self._world, self._root), self._root)
        self._context = self._world.plant.GetMyMutableContextFromRoot(self._root)

    def step_seconds(self, before: Snapshot, times: np.ndarray, torques: np.ndarray) -> list[float]:
        """Returns the processor time of each simulation step from a snapshot, s.

        Args:
            before: The snapshot.
            times: (N,), times of the steps.
            torques: (7, N), torques in each.
        """
        early = times - TIME_STEP / 2  # whichever way times are rounded
        self._source.UpdateTrajectory(PiecewisePolynomial.ZeroOrderHold(early, torques))
        self._root.SetTime(before.step / CONTROL_RATE)
        self._world.plant.SetPositionsAndVelocities(self._context, before.x)
        self._simulator.Initialize()
        return _step_seconds(self._simulator, times)

    def state(self) -> np.ndarray:
        """Returns positions and velocities of the plant."""
        return self._world.plant.GetPositionsAndVelocities(self._context)

"""The time of a simulation step with the controller, and of the same step without it."""

from dataclasses import replace
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
from fleet_tools.sim.simulation import CONTROL_RATE, Simulation, Snapshot
from fleet_tools.sim.task_models import find_task_model
from fleet_tools.sim.world import TIME_STEP, World

if TYPE_CHECKING:
    from fleet_tools.config.tasks import TaskConfig
    from fleet_tools.sim.scene import Scene

_REPETITIONS = 3
"""Measurements of each control step, of which the shortest counts."""


def measure_controller(task: str, episodes: int) -> dict[str, float]:
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
        replay.set_torques(*_commanded_torques(simulation, before, after))
        without.append(min(replay.seconds(before, after) for _ in range(_REPETITIONS)))
        delta = action.astype(np.float64) * env.action_scale
        with_it.append(min(_seconds(simulation, before, delta) for _ in range(_REPETITIONS)))
        for x in (replay.state(), simulation.snapshot().x):
            if x.tobytes() != after.x.tobytes():
                raise AssertionError(f"{task}: the same torques led to another state.")
    env.close()
    return {
        "simulation step with the controller, us": 1e6 * _per_simulation_step(with_it),
        "simulation step without it, us": 1e6 * _per_simulation_step(without),
        "simulation step, with over without": sum(with_it) / sum(without),
    }


def _per_simulation_step(control_steps: list[float]) -> float:
    return float(np.mean(control_steps)) * CONTROL_RATE * TIME_STEP


def _seconds(simulation: Simulation, before: Snapshot, delta: np.ndarray) -> float:
    """Returns the processor time of a control step from a snapshot, s."""
    simulation.restore(before)
    return cpu_seconds(lambda: simulation.step(delta))


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
            self._world: World = worlds.build_world(task, tool, object)
        self._simulator = Simulator(self._world.diagram)
        self._root = self._simulator.get_mutable_context()
        apply_scene(scene, self._world, read_defaults(self._world, self._root), self._root)
        self._context = self._world.plant.GetMyMutableContextFromRoot(self._root)

    def set_torques(self, times: np.ndarray, torques: np.ndarray) -> None:
        """Sets the torques, (7, N), each of which holds from its time on, (N,)."""
        early = times - TIME_STEP / 2  # whichever way times are rounded
        self._source.UpdateTrajectory(PiecewisePolynomial.ZeroOrderHold(early, torques))

    def seconds(self, before: Snapshot, after: Snapshot) -> float:
        """Returns the processor time between two snapshots, s."""
        self._root.SetTime(before.step / CONTROL_RATE)
        self._world.plant.SetPositionsAndVelocities(self._context, before.x)
        self._simulator.Initialize()
        return cpu_seconds(lambda: self._simulator.AdvanceTo(after.step / CONTROL_RATE))

    def state(self) -> np.ndarray:
        """Returns positions and velocities of the plant."""
        return self._world.plant.GetPositionsAndVelocities(self._context)

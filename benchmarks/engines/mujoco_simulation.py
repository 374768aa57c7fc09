"""A simulation whose time passes in MuJoCo, and whose world is Drake's.

Controller, observations and verdicts are those of the package, computed by Drake in the state that
MuJoCo has reached. Meters that Drake's own steps integrate stay at zero: impulses on joints, and
the attribution of motion to parts of the tool, so that `caused_by_part` cannot be judged.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pydrake.common.eigen_geometry import Quaternion
from pydrake.math import RotationMatrix
from pydrake.systems.framework import Context

from engines.mujoco_model import TIME_STEP, Stiffness, mujoco, mujoco_model
from fleet_tools.config.control import TIME_STEP as PERIOD
from fleet_tools.errors import ConfigError
from fleet_tools.robot.controller import OperationalSpaceController
from fleet_tools.sim.catalog import Model
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import World

SUBSTEPS = round(PERIOD / TIME_STEP)
STIFF, DEFAULT = Stiffness(2.0 * TIME_STEP, 0.999), Stiffness(0.02, 0.9)
"""About as hard as steps of this length allow, and what MuJoCo takes by default."""


class MujocoTime:
    """Advances the state of a diagram's plant, as `pydrake.systems.analysis.Simulator` does.

    Args:
        world: The world.
        root: Context of its diagram.
        stiffness: See `mujoco_model`.
    """

    def __init__(self, world: World, root: Context, stiffness: Stiffness) -> None:
        self._world, self._root, self._stiffness = world, root, stiffness
        self._context = world.plant.GetMyMutableContextFromRoot(root)
        (self._controller,) = (
            system
            for system in world.diagram.GetSystems()
            if isinstance(system, OperationalSpaceController)
        )
        self._monitor: Callable[[Context], Any] | None = None
        self.Initialize()

    def Initialize(self) -> None:
        """Reads scene and state from the context."""
        self._made = mujoco_model(self._world, self._root, self._stiffness)
        self._data = mujoco.MjData(self._made.model)
        self._periods = round(self._root.get_time() / PERIOD)
        plant, at = self._world.plant, dict(self._made.joints[:, [1, 3]].tolist())
        arm = plant.GetVelocitiesFromArray(self._world.arm, np.arange(plant.num_velocities()))
        self._dofs = np.array([at[plant.num_positions() + int(each)] for each in arm])
        self._read()

    def AdvanceTo(self, time: float) -> None:
        """Makes the controller's periods that begin before a time, and sets the state there."""
        arm = self._controller
        while self._periods * PERIOD < time:
            self._root.SetTime(self._periods * PERIOD)
            port = arm.get_output_port()
            torques = port.Eval(arm.GetMyContextFromRoot(self._root))[: self._dofs.size]
            self._data.qfrc_applied[self._dofs] = torques
            for _ in range(SUBSTEPS):
                mujoco.mj_step(self._made.model, self._data)
            self._periods += 1
            self._write()
            if self._monitor is not None:
                self._monitor(self._root)
        self._root.SetTime(time)

    def set_monitor(self, monitor: Callable[[Context], Any]) -> None:
        """Sets a function that is called after each period of the controller."""
        self._monitor = monitor

    def clear_monitor(self) -> None:
        """Removes it."""
        self._monitor = None

    def _read(self) -> None:
        x = self._world.plant.GetPositionsAndVelocities(self._context)
        data = self._data
        q, v, qpos, qvel = self._made.joints.T
        data.qpos[qpos], data.qvel[qvel] = x[q], x[v]
        for q, v, qpos, qvel in self._made.free:
            data.qpos[qpos : qpos + 7] = [*x[q + 4 : q + 7], *x[q : q + 4]]
            R_WB = _rotation(x[q : q + 4])
            data.qvel[qvel : qvel + 6] = [*x[v + 3 : v + 6], *(R_WB.T @ x[v : v + 3])]

    def _write(self) -> None:
        x = self._world.plant.GetPositionsAndVelocities(self._context)
        data = self._data
        q, v, qpos, qvel = self._made.joints.T
        x[q], x[v] = data.qpos[qpos], data.qvel[qvel]
        for q, v, qpos, qvel in self._made.free:
            x[q : q + 7] = [*data.qpos[qpos + 3 : qpos + 7], *data.qpos[qpos : qpos + 3]]
            turned = _rotation(x[q : q + 4]) @ data.qvel[qvel + 3 : qvel + 6]
            x[v : v + 6] = [*turned, *data.qvel[qvel : qvel + 3]]
        self._world.plant.SetPositionsAndVelocities(self._context, x)


def _rotation(quaternion: np.ndarray) -> np.ndarray:
    return RotationMatrix(Quaternion(quaternion / np.linalg.norm(quaternion))).matrix()


class MujocoSimulation(Simulation):
    """Simulates scenes of one object, without pushes, in MuJoCo, see `Simulation`."""

    stiffness = STIFF

    def __init__(
        self,
        world: World,
        tool: Model,
        object: Model,
        scene: Scene,
        next_objects: Sequence[Model] = (),
    ) -> None:
        if next_objects:
            raise ConfigError(
                f"MuJoCo simulates one object here; the scene has {1 + len(next_objects)}. Use "
                "Drake, or a scene of one."
            )
        super().__init__(world, tool, object, scene)
        self._simulator: Any = MujocoTime(world, self._root, self.stiffness)


class SoftMujocoSimulation(MujocoSimulation):
    """The same with MuJoCo's default stiffness."""

    stiffness = DEFAULT

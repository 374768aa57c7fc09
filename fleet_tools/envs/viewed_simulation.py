"""The viewed simulation of an environment: one world after another, and its viewers."""

import gc
from collections.abc import Sequence
from typing import Protocol

from pydrake.geometry import Meshcat

from fleet_tools.config.tasks import TaskConfig
from fleet_tools.robot.arm import LIGHT, Arm
from fleet_tools.sim.catalog import find_task_model
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import World, build_world

_WORLDS_KEPT = 8
"""Number of released worlds, 4 MB each, after which Python collects garbage, which takes 50 ms."""


class Viewer(Protocol):
    """A viewer of simulations, such as an observer or a renderer."""

    def enter(self, world: World) -> None:
        """Prepares to show another world, or the same with another object in use.

        Of another world, a scene begins next; with another object, the scene goes on.
        """
        ...

    def begin(self, scene: Scene) -> None:
        """Begins an episode in a scene of this world."""
        ...

    def close(self) -> None:
        """Releases its resources; `enter` starts again."""
        ...


class ViewedSimulation:
    """Simulations of a task. A world is built anew only for another pair of models.

    Args:
        task: The task.
        robot: The arm.
        viewers: Who watches; they enter each world, and begin each scene.
        robot_visuals: Visual meshes of the arm.
        meshcat: Viewer in the browser.

    Attributes:
        simulation: The present simulation; None before the first, and after an error.
        substeps: Of the worlds that are built from now on, see `build_world`.
    """

    _released = 0  # by all of this process, since garbage was collected

    def __init__(
        self,
        task: TaskConfig,
        robot: Arm,
        viewers: Sequence[Viewer],
        *,
        robot_visuals: str = LIGHT,
        meshcat: Meshcat | None = None,
    ) -> None:
        self._task, self._viewers, self._meshcat = task, tuple(viewers), meshcat
        self._robot, self._robot_visuals = robot, robot_visuals
        self.simulation: Simulation | None = None
        self._entered: World | None = None
        self.substeps = 1

    def begin(self, scene: Scene) -> Simulation:
        """Begins a scene.

        Raises:
            ConfigError, UnknownNameError: A model of the scene cannot be used here.
            SimulationError: No simulation can begin in the scene.
            MissingLibraryError, ForkedRendererError: A viewer cannot render here.
        """
        simulation = self.simulation
        if simulation is not None and scene.models == simulation.scene.models:
            simulation.reset(scene)
        else:
            simulation = self._another(scene)
        self.show_object(simulation)
        for viewer in self._viewers:
            viewer.begin(scene)
        return simulation

    def show_object(self, simulation: Simulation) -> None:
        """Lets the viewers know which object is in use.

        Args:
            simulation: The present simulation.
        """
        if simulation.world is not self._entered:
            for viewer in self._viewers:
                viewer.enter(simulation.world)
            self._entered = simulation.world

    def close(self) -> None:
        """Releases the simulation and the viewers' resources; `begin` starts again."""
        for viewer in self._viewers:
            viewer.close()
        self._release(_WORLDS_KEPT)

    def _another(self, scene: Scene) -> Simulation:
        tool = find_task_model(self._task, "tool", scene.tool)
        object, *others = (
            find_task_model(self._task, "object", each.object) for each in scene.objects
        )
        self._release()
        world = build_world(
            self._task,
            self._robot,
            tool,
            object,
            next_objects=others,
            meshcat=self._meshcat,
            robot_visuals=self._robot_visuals,
            substeps=self.substeps,
        )
        simulation = Simulation(world, tool, object, scene, others)
        self.simulation = simulation
        return simulation

    def _release(self, counts: int = 1) -> None:
        """Releases the simulation.

        A diagram is megabytes in a few Python objects with cyclic references, so that Python would
        collect a hundred of them too late.

        Args:
            counts: As how many worlds it counts; from `_WORLDS_KEPT`, garbage is collected now.
        """
        self.simulation = self._entered = None
        ViewedSimulation._released += counts
        if ViewedSimulation._released >= _WORLDS_KEPT:
            gc.collect()
            ViewedSimulation._released = 0

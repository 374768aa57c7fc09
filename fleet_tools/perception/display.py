"""Pictures for people, with shadows, apart from what policies observe."""

import numpy as np
from pydrake.math import RigidTransform

from fleet_tools.config.tasks import TaskConfig
from fleet_tools.errors import UnknownNameError
from fleet_tools.perception.appearance import apply_appearance, within_material
from fleet_tools.perception.observer import camera_poses
from fleet_tools.perception.pinhole import Pinhole
from fleet_tools.perception.render_scene import RenderScene
from fleet_tools.perception.rendering import render_rgb
from fleet_tools.perception.third_person_view import (
    HEIGHT,
    THIRD,
    WIDTH,
    View,
    third_person_view,
)
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import World


def check_camera(task: TaskConfig, camera: str) -> None:
    """Checks the name of a camera.

    Raises:
        UnknownNameError: It is neither `THIRD` nor a camera of the task.
    """
    if camera not in (known := [THIRD, *task.cameras]):
        raise UnknownNameError("camera", camera, known)


def find_view(
    task: TaskConfig,
    scene: Scene,
    X_WE: RigidTransform,
    camera: str = THIRD,
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> View:
    """Returns where a camera is now.

    Args:
        task: The task.
        scene: The scene, from which a camera of the task has its pose.
        X_WE: Pose of the end effector, to which such a camera may be attached.
        camera: Name of a camera of the task, or `THIRD`.
        size: Width and height of the picture, pixels.

    Raises:
        UnknownNameError: There is no such camera.
    """
    check_camera(task, camera)
    if camera == THIRD:
        return third_person_view(size)
    X_WC = camera_poses(task.cameras, scene.cameras, X_WE)[camera]
    return View(Pinhole.of(task.cameras[camera], size), X_WC)


class Display:
    """Renders pictures of one world after another.

    Its renderer has lights of its own and casts shadows, and tints stay within the material
    (`within_material`). The observation cameras have another one, so that a policy observes the
    same whether it is watched or not.
    """

    def __init__(self) -> None:
        self._render_scene: RenderScene | None = None

    def enter(self, world: World) -> None:
        """Prepares to show another world.

        Raises:
            MissingLibraryError, ForkedRendererError: Images cannot be rendered here.
            ConfigError: The world has too many visible links.
        """
        if self._render_scene is None:
            self._render_scene = RenderScene(world, shadows=True)
        self._render_scene.enter(world)

    def close(self) -> None:
        """Releases OpenGL; `enter` starts anew."""
        self._render_scene = None

    def apply_scene(self, scene: Scene) -> None:
        """Sets the appearance of a scene."""
        apply_appearance(scene, self._entered(), within_material)

    def image(self, simulation: Simulation, view: View) -> np.ndarray:
        """Returns a picture of the present state, (height, width, 3) uint8."""
        query = self._entered().query(simulation.query())
        return render_rgb(query, view.pinhole, view.X_WC)

    def _entered(self) -> RenderScene:
        if self._render_scene is None:
            raise RuntimeError("This display has not entered a world.")
        return self._render_scene

"""Pictures for people: the third-person view, in images and in Meshcat's browser."""

import ipaddress
import os
from pathlib import Path

import numpy as np
from pydrake.common import MemoryFile
from pydrake.geometry import InMemoryMesh, Mesh, Meshcat, MeshcatParams, Rgba
from pydrake.math import RigidTransform, RotationMatrix

from fleet_tools.config.file_access import texture_file
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.perception.camera_view import PICTURE_SIZE, THIRD, CameraView, Pinhole
from fleet_tools.perception.observer import camera_views
from fleet_tools.perception.render_scene import VtkRenderer
from fleet_tools.perception.rendering import BACKGROUND_COLOR, tinted, within_material
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.world import TABLE_CENTER, TABLE_COLOR, TABLE_SIZE

WIDTH, HEIGHT = PICTURE_SIZE
FIELD_OF_VIEW_DEG = 40.0
DEPTH_RANGE_M = (0.05, 10.0)
EYE, TARGET = (1.50, -1.00, 0.80), (0.32, 0.0, 0.30)
"""Position of the camera, and the point at which it looks, in the world, m."""
MESHCAT_DISTANCE_SCALE = 0.55
"""Meshcat's field of view is wider, so that its camera must be nearer."""

MESHCAT_HOST = "FLEET_TOOLS_MESHCAT_HOST"
"""Environment variable with the address at which Meshcat listens, such as 0.0.0.0."""

TABLE = "table_top"
_ABOVE_M = 2e-4
"""Height above the table of the world, which it covers."""


def third_person_view(size: tuple[int, int] = PICTURE_SIZE) -> CameraView:
    """Returns the view of the whole scene.

    Args:
        size: Width and height of the picture, pixels.
    """
    pinhole = Pinhole.from_field_of_view(*size, FIELD_OF_VIEW_DEG)
    return CameraView(THIRD, pinhole, look_at(EYE, TARGET), DEPTH_RANGE_M)


def open_meshcat() -> Meshcat:
    """Starts a Meshcat server whose camera looks from the third-person view.

    It serves this machine alone, unless `MESHCAT_HOST` names another address.

    Raises:
        ConfigError: This is no address, or it cannot listen there.
    """
    host = os.environ.get(MESHCAT_HOST, "127.0.0.1")
    try:
        if host not in ("localhost", "*"):  # of an empty name, Drake would listen everywhere
            ipaddress.ip_address(host)
        meshcat = Meshcat(MeshcatParams(host=host, show_stats_plot=False))
    except (ValueError, RuntimeError) as error:
        raise ConfigError(
            f"Meshcat cannot listen on {host!r}, ports 7000 to 7999: {error}. {MESHCAT_HOST} is an "
            "address of this machine, such as 127.0.0.1, or * for all of them."
        ) from None
    for clutter in ("/Grid", "/Axes"):
        meshcat.SetProperty(clutter, "visible", False)
    for end in ("top_color", "bottom_color"):
        meshcat.SetProperty("/Background", end, list(BACKGROUND_COLOR))
    eye = np.add(TARGET, np.subtract(EYE, TARGET) * MESHCAT_DISTANCE_SCALE)
    meshcat.SetCameraPose(eye, TARGET)
    return meshcat


def look_at(eye: tuple[float, ...], target: tuple[float, ...]) -> RigidTransform:
    """Returns X_WC of a camera (x right, y down, z forward) at `eye` that looks at `target`."""
    forward = np.subtract(target, eye)
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    columns = np.column_stack([right, np.cross(forward, right), forward])
    return RigidTransform(RotationMatrix(columns), eye)


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
    size: tuple[int, int] = PICTURE_SIZE,
) -> CameraView:
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
    return next(
        view
        for view in camera_views(task.cameras, scene.cameras, X_WE, size)
        if view.name == camera
    )


def picture_renderer() -> VtkRenderer:
    """Makes a renderer of pictures: with shadows, and tints within the material.

    Raises:
        MissingLibraryError: OpenGL is missing.
    """
    return VtkRenderer(shadows=True, shown=within_material)


def show_table(meshcat: Meshcat, scene: Scene) -> None:
    """Covers the table with its texture and tint; recordings and their files keep them."""
    color = tinted(Rgba(*TABLE_COLOR), within_material(scene.table_tint))
    texture = texture_file(scene.table_texture)
    material = f"newmtl table\nKd {color.r():.6f} {color.g():.6f} {color.b():.6f}\n"
    files: dict[str, MemoryFile | Path] = {}
    if texture is not None:
        material += f"map_Kd {texture.name}\n"
        files[texture.name] = texture
    files["table.mtl"] = MemoryFile(material, ".mtl", "table.mtl")
    source = InMemoryMesh(
        mesh_file=MemoryFile(_square(), ".obj", "table.obj"), supporting_files=files
    )
    meshcat.SetObject(TABLE, Mesh(mesh_data=source))
    meshcat.SetTransform(TABLE, RigidTransform([*TABLE_CENTER, _ABOVE_M]))


def _square() -> str:
    """Returns the top of the table as an OBJ file; an image covers it once, as in VTK's boxes."""
    x, y = TABLE_SIZE[0] / 2, TABLE_SIZE[1] / 2
    corners = [(-x, -y, 0, 0), (x, -y, 1, 0), (x, y, 1, 1), (-x, y, 0, 1)]
    lines = ["mtllib table.mtl"]
    lines += [f"v {px} {py} 0" for px, py, _, _ in corners]
    lines += [f"vt {u} {v}" for _, _, u, v in corners]
    lines += ["vn 0 0 1", "usemtl table", "f 1/1/1 2/2/1 3/3/1", "f 1/1/1 3/3/1 4/4/1"]
    return "\n".join(lines) + "\n"

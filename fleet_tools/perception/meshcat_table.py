"""The table of a scene in Meshcat, whose own boxes have one colour and no texture."""

from pathlib import Path

from pydrake.common import MemoryFile
from pydrake.geometry import InMemoryMesh, Mesh, Meshcat, Rgba
from pydrake.math import RigidTransform

from fleet_tools.config.file_access import texture_file
from fleet_tools.perception.appearance import tinted, within_material
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.world import TABLE_CENTER, TABLE_COLOR, TABLE_SIZE

PATH = "table_top"
_ABOVE_M = 2e-4
"""Height above the table of the world, which it covers."""


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
    meshcat.SetObject(PATH, Mesh(mesh_data=source))
    meshcat.SetTransform(PATH, RigidTransform([*TABLE_CENTER, _ABOVE_M]))


def _square() -> str:
    """Returns the top of the table as an OBJ file; an image covers it once, as in VTK's boxes."""
    x, y = TABLE_SIZE[0] / 2, TABLE_SIZE[1] / 2
    corners = [(-x, -y, 0, 0), (x, -y, 1, 0), (x, y, 1, 1), (-x, y, 0, 1)]
    lines = ["mtllib table.mtl"]
    lines += [f"v {px} {py} 0" for px, py, _, _ in corners]
    lines += [f"vt {u} {v}" for _, _, u, v in corners]
    lines += ["vn 0 0 1", "usemtl table", "f 1/1/1 2/2/1 3/3/1", "f 1/1/1 3/3/1 4/4/1"]
    return "\n".join(lines) + "\n"

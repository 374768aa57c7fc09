"""Visual meshes as strangers write them, and models that show them."""

from pathlib import Path

import numpy as np
import trimesh
from PIL import Image
from pydrake.geometry import SceneGraph
from pydrake.multibody.plant import AddMultibodyPlant, MultibodyPlantConfig
from pydrake.systems.framework import DiagramBuilder
from trimesh.exchange.gltf import export_gltf
from trimesh.visual import TextureVisuals
from trimesh.visual.material import PBRMaterial

from fleet_tools.sim.add_models import add_model
from fleet_tools.sim.catalog import Kind, load_model

SDF = """<sdf version="1.9" xmlns:drake="https://drake.mit.edu"><model name="m"><link name="bar">
<inertial><mass>1</mass><inertia><ixx>1</ixx><iyy>1</iyy><izz>1</izz></inertia></inertial>
<visual name="v"><pose>0 0 0 0 0 0.5</pose><geometry><mesh><uri>{uri}</uri><scale>2 1 -1</scale>
</mesh></geometry>{material}</visual>{more}</link>{models}</model></sdf>"""
URDF = """<robot name="m"><link name="bar"><inertial><mass value="1"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
<visual><origin rpy="0 0 0.5"/><geometry><mesh filename='{uri}' scale="2 1 -1"/></geometry>
<material name="paint"><color rgba="0.2 0.4 0.9 1"/></material></visual></link></robot>"""
BLUE = "<material><diffuse>0.2 0.4 0.9 1</diffuse></material>"
LABELS = "family: hammer\nkind: tool\nkeypoints: {head: {link: bar, position: [0, 0, 0]}}\n"


def wedge() -> trimesh.Trimesh:
    """Returns a mesh without any symmetry, whose coordinates have few bits."""
    corners = [(0, 0, 0), (1, 0, 0), (0, 2, 0), (0, 0, 3), (1, 0, 1), (1, 2, 0)]
    return trimesh.Trimesh(np.array(corners) / 16 - 1 / 32).convex_hull


def uv(mesh: trimesh.Trimesh) -> np.ndarray:
    return mesh.vertices[:, [0, 2]] * 4


def textured(image: Image.Image | None = None, **material) -> trimesh.Trimesh:
    """Returns the wedge with a texture, or with a colour."""
    mesh = wedge()
    mesh.unmerge_vertices()
    look = PBRMaterial(baseColorTexture=image, **material)
    mesh.visual = TextureVisuals(uv=uv(mesh), material=look)
    return mesh


def stripes() -> Image.Image:
    """Returns a picture of which neither axis may be exchanged or reversed."""
    pixels = np.zeros((32, 32, 3), np.uint8)
    pixels[:8], pixels[8:20, :16], pixels[20:, 8:] = (250, 30, 30), (30, 250, 30), (30, 30, 250)
    return Image.fromarray(pixels)


def upright(mesh: trimesh.Trimesh) -> trimesh.Trimesh:
    """Returns a mesh in axes in which y is up."""
    turned = mesh.copy()
    turned.apply_transform(np.array([[1, 0, 0, 0], [0, 0, 1, 0], [0, -1, 0, 0], [0, 0, 0, 1]]))
    return turned


def write_gltf(folder: Path, mesh: trimesh.Trimesh, uri: str = "x.gltf") -> None:
    """Writes a glTF file, with its buffers beside it or, as x.glb, within it."""
    scene = trimesh.Scene(upright(mesh))
    if uri == "x.glb":
        scene.export(folder / uri)
    else:
        for name, content in export_gltf(scene).items():
            (folder / (uri if name == "model.gltf" else name)).write_bytes(content)


def write_obj(folder: Path, mesh: trimesh.Trimesh, image: str, *, normals: bool = True) -> None:
    """Writes a Wavefront file with a texture in a format."""
    lines = ["mtllib x.mtl", "usemtl look", *(f"v {x} {y} {z}" for x, y, z in mesh.vertices)]
    lines += [f"vt {u} {v}" for u, v in uv(mesh)]
    lines += [f"vn {x} {y} {z}" for x, y, z in mesh.face_normals] if normals else []
    for k, face in enumerate(mesh.faces + 1):
        lines.append("f " + " ".join(f"{i}/{i}" + f"/{k + 1}" * normals for i in face))
    (folder / "x.obj").write_text("\n".join(lines) + "\n")
    (folder / "x.mtl").write_text(f"newmtl look\nKd 1 1 1\nmap_Kd {image}\n")
    stripes().save(folder / image)


def model(folder: Path, uri: str = "x.obj", text: str = SDF, **parts: str) -> Path:
    """Writes a model with a visual mesh, and returns its folder."""
    folder.mkdir(exist_ok=True)
    parts = {"material": BLUE, "more": "", "models": ""} | parts
    suffix = "urdf" if text is URDF else "sdf"
    (folder / f"model.{suffix}").write_text(text.format(uri=uri, **parts))
    (folder / "keypoints.yaml").write_text(LABELS)
    return folder


def loaded(folder: Path, kind: Kind = "tool") -> tuple[DiagramBuilder, SceneGraph]:
    """Loads a model as a world does."""
    builder = DiagramBuilder()
    plant, scene_graph = AddMultibodyPlant(MultibodyPlantConfig(time_step=0.004), builder)
    add_model(plant, scene_graph, load_model(folder, kind), kind)
    plant.Finalize()
    return builder, scene_graph

"""Point clouds of a known body, as scanners store them."""

from pathlib import Path

import numpy as np
import trimesh

from fleet_tools.experts.perception.shapes import sample

SIZE = (0.2, 0.08, 0.06)


def body() -> trimesh.Trimesh:
    """Returns a closed body, m: a block with a notch, whose convex hull is a tenth larger."""
    block = trimesh.creation.box(SIZE)
    notch = trimesh.creation.box((0.06, 0.2, 0.03))
    notch.apply_translation((0.03, 0.0, 0.025))
    cut = trimesh.boolean.difference([block, notch], engine="manifold")
    assert isinstance(cut, trimesh.Trimesh)
    return cut


def sampled(mesh: trimesh.Trimesh, count: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Returns points of a surface and its outward normals there, (count, 3) each."""
    points, faces = sample(np.array(mesh.triangles), count)
    return points, np.array(mesh.face_normals)[faces]


def write_ply(path: Path, points: np.ndarray, normals: np.ndarray | None = None) -> Path:
    """Writes a cloud as a binary PLY file, in double precision."""
    columns, rows = list("xyz"), points
    if normals is not None:
        columns, rows = [*columns, "nx", "ny", "nz"], np.column_stack([points, normals])
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {len(rows)}"]
    header += [*(f"property double {name}" for name in columns), "end_header\n"]
    path.write_bytes("\n".join(header).encode() + rows.astype("<f8").tobytes())
    return path

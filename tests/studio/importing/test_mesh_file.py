"""Mesh files that are damaged are refused."""

from pathlib import Path

import pytest

from fleet_tools.errors import ConfigError
from fleet_tools.studio.importing.mesh_file import read_mesh


def test_a_mesh_whose_vertices_are_no_points_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "broken.obj"
    file.write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0\n 0\nf 1 2 3\n")
    with pytest.raises(ConfigError, match="cannot be read as OBJ"):
        read_mesh(file)

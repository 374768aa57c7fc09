"""What is read of a model: every shape of Drake's, in SDFormat and URDF, with poses and links."""

import math
from pathlib import Path

import numpy as np
import pytest

from fleet_tools.assets.model_geometry import ModelGeometry
from fleet_tools.errors import ConfigError
from fleet_tools.sim.catalog import load_model
from fleet_tools.studio.checking.measure_model import measure_model

INERTIAL = """<inertial><mass value="0.5"/><origin xyz="0.01 0 0"/>
  <inertia ixx="1e-3" iyy="2e-3" izz="2.5e-3" ixy="0" ixz="0" iyz="0"/></inertial>"""
LABELS = """family: {family}
kind: tool
keypoints:
  tip: {{link: {link}, position: [0.1, 0.0, 0.0]}}
grasp: {{translation_m: [0.0, 0.0, 0.02], rpy_deg: [0, 0, 90]}}
"""


def read(folder: Path, shapes: str, link: str = "body") -> ModelGeometry:
    """Reads a URDF with two links, the second 0.2 m beside the first and turned by 90 degrees."""
    (folder / "model.urdf").write_text(
        f"""<robot name="shapes">
          <link name="body">{INERTIAL}{shapes}</link>
          <link name="arm">{INERTIAL}
            <collision><geometry><box size="0.1 0.02 0.02"/></geometry></collision></link>
          <joint name="weld" type="fixed"><parent link="body"/><child link="arm"/>
            <origin xyz="0.2 0 0" rpy="0 0 {math.pi / 2}"/></joint>
        </robot>"""
    )
    (folder / "keypoints.yaml").write_text(LABELS.format(family="hook", link=link))
    return measure_model(load_model(folder, "tool"))


def collision(geometry: str) -> str:
    return f'<collision><origin xyz="0 0 0.3"/><geometry>{geometry}</geometry></collision>'


@pytest.mark.parametrize(
    ("shape", "volume", "height"),
    [
        ('<box size="0.1 0.2 0.3"/>', 0.006, 0.3),
        ('<sphere radius="0.1"/>', 4 / 3 * math.pi * 1e-3, 0.2),
        ('<cylinder radius="0.1" length="0.2"/>', 0.2 * math.pi * 1e-2, 0.2),
    ],
)
def test_a_shape_has_its_volume_and_its_place(tmp_path: Path, shape, volume, height):
    body = read(tmp_path, collision(shape)).links["body"]
    (piece,) = body.pieces
    assert piece.volume == pytest.approx(volume, rel=0.02)
    low, high = piece.vertices.min(axis=0), piece.vertices.max(axis=0)
    assert high[2] - low[2] == pytest.approx(height, rel=0.01)
    np.testing.assert_allclose((low + high) / 2, [0, 0, 0.3], atol=1e-9)


def test_links_keypoints_and_grasp_are_in_the_model_frame(tmp_path: Path):
    geometry = read(tmp_path, collision('<box size="0.1 0.1 0.1"/>'), link="arm")
    (piece,) = geometry.links["arm"].pieces
    np.testing.assert_allclose(np.ptp(piece.vertices, axis=0), [0.02, 0.1, 0.02], atol=1e-9)
    np.testing.assert_allclose(geometry.p_M["tip"], [0.2, 0.1, 0], atol=1e-9)
    np.testing.assert_allclose(geometry.links["arm"].p_MCom, [0.2, 0.01, 0], atol=1e-9)
    np.testing.assert_allclose(geometry.links["arm"].moments, [1e-3, 2e-3, 2.5e-3], atol=1e-9)
    np.testing.assert_allclose(geometry.X_MG.rotation().matrix()[:, 1], [-1, 0, 0], atol=1e-9)
    assert geometry.keypoint_links == {"tip": "arm"}


def test_a_keypoint_on_no_link_is_an_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="'tip' is on the link 'leg'"):
        read(tmp_path, collision('<box size="1 1 1"/>'), link="leg")


def test_a_broken_file_is_an_error(tmp_path: Path):
    read(tmp_path, collision('<box size="1 1 1"/>'))
    file = tmp_path / "model.urdf"
    file.write_text(file.read_text().replace('child link="arm"', 'child link="nobody"'))
    with pytest.raises(ConfigError, match=r"Drake cannot read .*model\.urdf"):
        measure_model(load_model(tmp_path, "tool"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('xyz="0.2 0 0"', 'xyz="0.2 0"'),  # Drake raises a ValueError
        ("</joint>", '<limit lower="1" upper="-1"/></joint>'),  # and ends the program
    ],
)
def test_what_drake_ends_the_program_for_is_an_error(tmp_path: Path, old: str, new: str):
    read(tmp_path, collision('<box size="1 1 1"/>'))
    file = tmp_path / "model.urdf"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new).replace('"fixed"', '"revolute"'))
    with pytest.raises(ConfigError, match=r"Drake cannot read .*model\.urdf"):
        measure_model(load_model(tmp_path, "tool"))

"""A copy of the point clouds as PLY files, one for each step, for programs that show clouds.

<attempt>/<step>.ply    the cloud in the end effector's frame E, see `cloud_export`
<attempt>/poses.csv     step, and [R_WE | p_WE] in rows, which moves a cloud to W
"""

from pathlib import Path

import numpy as np

from fleet_tools.dataset.export.source import ExportSource
from fleet_tools.dataset.header import Header
from fleet_tools.errors import DatasetError
from fleet_tools.perception.cloud_export import cloud_to_ply

_POSE = "end_effector_pose"


def opens(output: Path, header: Header) -> str:
    """Returns the line of Python that opens the copy."""
    return f"trimesh.load({f'{output}/<attempt>/<step>.ply'!r}), or any viewer of point clouds"


def write(source: ExportSource, aside: Path, target: Path) -> list[str]:
    """Writes the copy, see `exporting.ExportFormat`; one episode is in memory at a time.

    Raises:
        DatasetError: The dataset has no point clouds.
    """
    layout = source.header.observation
    name = next((name for name, spec in layout.items() if spec.kind == "points"), None)
    if name is None:
        raise DatasetError(
            f"{source.dataset.folder} holds no point clouds, but {', '.join(sorted(layout))}. "
            "Collect with --obs-mode point_cloud."
        )
    for record, episode in source.episodes():
        clouds = episode.observations[name]
        folder = aside / f"{record.attempt:06}"
        folder.mkdir(parents=True)
        for step, cloud in enumerate(clouds):
            (folder / f"{step:04}.ply").write_bytes(cloud_to_ply(cloud))
        poses = episode.observations[_POSE].reshape(len(clouds), -1)
        table = np.column_stack([np.arange(len(clouds)), poses])
        np.savetxt(folder / "poses.csv", table, delimiter=",", fmt=["%d"] + ["%.9g"] * 12)
    return [
        "all but the point clouds and the poses of the end effector: actions, rewards, scenes, and "
        "other observations"
    ]

"""The expert's episode, played in the page."""

import threading
from typing import TYPE_CHECKING

import numpy as np

from fleet_tools.assets.labelling.scene_view import quaternion

if TYPE_CHECKING:
    import viser

    from fleet_tools.assets.labelling.expert_motion import Motion

FRAMES_PER_S = 24
"""Rate at which links are moved."""

PAUSE_S = 1.0
"""Pause before the episode is played again."""


class MotionView:
    """An episode that is played in a loop.

    Args:
        server: The page.
        motion: The episode.
    """

    def __init__(self, server: "viser.ViserServer", motion: "Motion") -> None:
        self._server, self._motion = server, motion
        self._ended = threading.Event()
        self._root = server.scene.add_frame("/expert", show_axes=False)
        self._links = []
        for k, link in enumerate(motion.links):
            count = len(link.triangles)
            handle = server.scene.add_mesh_simple(
                f"/expert/{k}",
                link.triangles.reshape(-1, 3),
                np.arange(3 * count).reshape(-1, 3),
                color=link.colour,
                flat_shading=True,
                side="double",
            )
            self._links.append((handle, *_resampled(link.X_WL, motion.rate_hz)))
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stops and removes it."""
        self._ended.set()
        self._thread.join()
        self._root.remove()

    def _play(self) -> None:
        count = len(self._links[0][1])
        while not self._ended.is_set():
            for k in range(count):
                with self._server.atomic():
                    for handle, positions, quaternions in self._links:
                        handle.position, handle.wxyz = positions[k], quaternions[k]
                if self._ended.wait(1 / FRAMES_PER_S):
                    return
            self._ended.wait(PAUSE_S)


def _resampled(X_WL: np.ndarray, rate_hz: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns positions (n, 3) and quaternions (n, 4) at `FRAMES_PER_S`, between the poses."""
    from scipy.spatial.transform import Rotation, Slerp

    given = np.arange(len(X_WL)) / rate_hz
    wanted = np.arange(0, given[-1] + 1e-9, 1 / FRAMES_PER_S)
    turned = Slerp(given, Rotation.from_matrix(X_WL[:, :3, :3]))(wanted)
    positions = np.column_stack([np.interp(wanted, given, X_WL[:, k, 3]) for k in range(3)])
    return positions, np.array([quaternion(matrix) for matrix in turned.as_matrix()])

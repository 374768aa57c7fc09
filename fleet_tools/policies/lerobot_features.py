"""An observation's entries as the features of LeRobot, as its datasets and policies name them.

observation.state               the arm's state and keypoints, concatenated
observation.images.<camera>     color images, (height, width, 3)
observation.<name>              all other entries: depth, points, poses
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fleet_tools.envs.array_spec import Layout

STATE, ACTION, IMAGES = "observation.state", "action", "observation.images."
"""Names of features, and the beginning of the names of images."""

_STATE_KINDS = ("state", "one_hot", "keypoints", "masked_keypoints")


@dataclass(frozen=True)
class FeatureNames:
    """Assignment of an observation's entries to features.

    Attributes:
        state: Names of the entries that `observation.state` concatenates.
        color_images: Names of the features of color images, by entry.
        others: Names of the features of all other entries, by entry.
    """

    state: tuple[str, ...]
    color_images: dict[str, str]
    others: dict[str, str]

    @classmethod
    def of(cls, layout: Layout) -> "FeatureNames":
        """Assigns the entries of a layout."""
        colors = [name for name, array in layout.items() if array.kind == "rgb"]
        state = tuple(
            name
            for name, array in layout.items()
            if array.kind in _STATE_KINDS and array.dtype == "float32"
        )
        others = [name for name in layout if name not in colors and name not in state]
        return cls(
            state,
            {name: IMAGES + name.removesuffix("_rgb") for name in colors},
            {name: f"observation.{name}" for name in others},
        )

    def features(self, observations: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the features of observations, by name; those whose entries are there.

        Args:
            observations: Arrays (T, ...) by the entry's name, of T steps.
        """
        state = [observations[name] for name in self.state if name in observations]
        named = {**self.color_images, **self.others}
        return {
            **({STATE: _joined(state)} if state and len(state) == len(self.state) else {}),
            **{named[name]: rows for name, rows in observations.items() if name in named},
        }

    def entries_of(self, feature: str) -> tuple[str, ...]:
        """Returns the entries of a feature; none if there is no such feature."""
        if feature == STATE:
            return self.state
        named = {**self.color_images, **self.others}
        return tuple(entry for entry, name in named.items() if name == feature)

    def features_of_step(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the features of one observation, by name."""
        rows = self.features({name: array[None] for name, array in observation.items()})
        return {name: array[0] for name, array in rows.items()}


def _joined(state: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([rows.reshape(len(rows), -1) for rows in state], axis=1)

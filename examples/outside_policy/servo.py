"""A policy from outside: hammers by visual servoing on keypoints, without plan, model or learning.

    python -m fleet_tools.evaluate --policy examples.outside_policy.servo:make_policy \
        --tool hammer --output results/servo

All that it shares with Fleet-Tools is the interface: a factory takes the environment, and what it
returns has `reset()` and `act(observation)`.
"""

import numpy as np
from scipy.spatial.transform import Rotation

RAISED_M = 0.08  # of the hammer's face over the nail's head, before a blow
NEAR_M, ALIGNED = 0.02, 0.98  # what is raised well enough; the latter is an angle's cosine
BLOW_STEPS = 5  # of 1/6 s
FOLLOW_THROUGH_M = 0.03  # how far beyond the nail's head a blow aims


def make_policy(env) -> "Servo":
    """What `--policy module:function` names."""
    return Servo(env.unwrapped.senses, env.unwrapped.action_scale)


make_policy.environment = {"obs_mode": "state"}  # what it wants to observe


class Servo:
    """Brings the hammer's face over the nail, parallel to its head, and strikes; again and again.

    Args:
        senses: Names the keypoints in the rows of the observation.
        action_scale: (6,), the motion that each entry of an action stands for when it is 1, m, rad.
    """

    def __init__(self, senses: dict, action_scale: np.ndarray) -> None:
        self._names = {
            name: senses[name].entries for name in ("tool_keypoints", "object_keypoints")
        }
        self._action_scale = action_scale
        self._blow = 0  # steps of it that are left

    def reset(self) -> None:
        """Forgets the last episode."""
        self._blow = 0

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the motion of the end effector E, (6,), in E's own present frame."""
        # Keypoints are seen in E, too, so nothing has to be transformed.
        tool, nail = (
            dict(zip(names, observation[sense].astype(float), strict=True))
            for sense, names in self._names.items()
        )
        face, drive = _unit(tool["head"] - tool["side"]), _unit(nail["base"] - nail["head"])
        raised = nail["head"] - RAISED_M * drive
        if self._blow:
            self._blow -= 1
        elif np.linalg.norm(tool["head"] - raised) < NEAR_M and face @ drive > ALIGNED:
            self._blow = BLOW_STEPS
        target = nail["head"] + FOLLOW_THROUGH_M * drive if self._blow else raised
        turn, _ = Rotation.align_vectors([drive], [face])  # the shortest one
        # E moves such that the hammer's head, which turns with it, comes to its target.
        motion = np.concatenate([target - turn.apply(tool["head"]), turn.as_rotvec()])
        action = motion / self._action_scale
        return np.float32(action / max(1.0, np.abs(action).max()))  # as far as it may, but straight


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)

"""A policy outside the package: it hammers by visual servoing on keypoints.

    python -m fleet_tools.evaluate --policy examples.outside_policy.servo:make_policy \
        --tool hammer --output results/servo

It has no plan, no model and no learning, and shares nothing with Fleet-Tools but the interface: a
factory takes the environment's interface, and returns an object with `reset()` and
`act(observation)`.
"""

import gymnasium
import numpy as np
from scipy.spatial.transform import Rotation

RAISED_M = 0.08
"""Height of the hammer's face over the nail's head before a blow, m."""
NEAR_M, ALIGNED = 0.02, 0.98
"""Largest distance from that point, m, and least cosine of the angle to the nail, for a blow."""
BLOW_STEPS = 5
"""Duration of a blow, in control steps of 1/6 s."""
FOLLOW_THROUGH_M = 0.03
"""Depth below the nail's head at which a blow aims, m."""


class Servo:
    """Brings the hammer's face over the nail, parallel to its head, and strikes, repeatedly.

    Args:
        env: The environment in which it is to act.
    """

    env_kwargs = {"obs_mode": "state"}
    """Keyword arguments of the environment that give the observations it needs."""

    def __init__(self, env: gymnasium.Env) -> None:
        features = env.get_wrapper_attr("features")
        self._names = {
            name: features[name].entries for name in ("tool_keypoints", "object_keypoints")
        }
        self._action_scale = env.get_wrapper_attr("action_scale")  # m, rad
        self._blow = 0  # its remaining steps

    def reset(self) -> None:
        """Forgets the last episode."""
        self._blow = 0

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the motion of the end effector E, (6,), in E's own present frame."""
        # Keypoints are observed in E, too, so that nothing has to be transformed.
        tool, nail = (
            dict(zip(names, observation[entry].astype(float), strict=True))
            for entry, names in self._names.items()
        )
        face, drive = _unit(tool["head"] - tool["side"]), _unit(nail["base"] - nail["head"])
        raised = nail["head"] - RAISED_M * drive
        if self._blow:
            self._blow -= 1
        elif np.linalg.norm(tool["head"] - raised) < NEAR_M and face @ drive > ALIGNED:
            self._blow = BLOW_STEPS
        target = nail["head"] + FOLLOW_THROUGH_M * drive if self._blow else raised
        turn = Rotation.align_vectors([drive], [face])[0]  # the shortest one
        # E moves so that the hammer's head, which turns with it, reaches its target.
        motion = np.concatenate([target - turn.apply(tool["head"]), turn.as_rotvec()])
        action = motion / self._action_scale
        # Longer motions are shortened, in their direction.
        return (action / max(1.0, np.abs(action).max())).astype(np.float32)


make_policy = Servo
"""The factory that `--policy module:factory` names."""


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)

"""Policies whose actions are what cameras see, for tests of cameras with errors."""

from typing import Any

import numpy as np

CLOUDS: dict[str, Any] = {"obs_mode": "point_cloud", "cloud_size": [16, 16]}


class SeeingPolicy:
    """Acts by the first points that it sees.

    Args:
        env: Its environment; it is not used.
    """

    env_kwargs = CLOUDS

    def __init__(self, env: Any) -> None:
        pass

    def reset(self) -> None:
        pass

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        return np.tanh(10 * observation["point_cloud"][:6, 0]).astype(np.float32)


class GreedyPolicy(SeeingPolicy):
    """Asks for cameras without errors."""

    env_kwargs = {**CLOUDS, "sensors": "ideal"}

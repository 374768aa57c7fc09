"""Policies that keep something from one episode to the next, and policies that do not."""

import random
import time
from typing import Any

import numpy as np

STEPS = 3
"""Number of steps before a policy ends its episode by an error."""

_kept = {"episodes": 0}


class Forgetful:
    """Acts on the observation alone, and ends its episode after a few steps."""

    env_kwargs = {"obs_mode": "state"}

    def __init__(self, env: Any) -> None:
        self.made()

    def made(self) -> None:
        pass

    def reset(self) -> None:
        self.step = 0

    def noise(self) -> Any:
        return np.zeros(6)

    def act(self, observation: dict[str, np.ndarray]) -> Any:
        self.step += 1
        if self.step > STEPS:
            raise RuntimeError("enough")
        return np.resize(0.3 * observation["joint_position"], 6) + 0.1 * self.noise()


class Seeded(Forgetful):
    """Draws from the episode's seed."""

    def reset(self, seed: int = 0) -> None:
        super().reset()
        self.generator = np.random.default_rng(seed)

    def noise(self) -> Any:
        return self.generator.normal(size=6)


class Drawing(Forgetful):
    """Draws from a generator that nobody sets anew."""

    def made(self) -> None:
        self.generator = np.random.default_rng(0)

    def noise(self) -> Any:
        return self.generator.normal(size=6)


class Learning(Forgetful):
    """Subtracts the mean of all that it has seen."""

    def made(self) -> None:
        self.sum, self.count = np.zeros(6), 0

    def act(self, observation: dict[str, np.ndarray]) -> Any:
        self.sum, self.count = self.sum + (action := super().act(observation)), self.count + 1
        return action - self.sum / self.count


class OfModule(Forgetful):
    def reset(self) -> None:
        super().reset()
        _kept["episodes"] += 1

    def noise(self) -> Any:
        return np.full(6, _kept["episodes"])


class OfClass(Forgetful):
    episodes = 0

    def reset(self) -> None:
        super().reset()
        type(self).episodes += 1

    def noise(self) -> Any:
        return np.full(6, self.episodes)


class OfDefault(Forgetful):
    def noise(self, seen: list[int] = []) -> Any:  # noqa: B006
        seen.append(1)
        return np.full(6, len(seen))


class OfRandom(Forgetful):
    def noise(self) -> Any:
        return np.full(6, random.random())


class OfNumpy(Forgetful):
    def noise(self) -> Any:
        return np.random.normal(size=6)


class OfClock(Forgetful):
    def noise(self) -> Any:
        return np.full(6, time.monotonic() % 1)


class OfProcess(Forgetful):
    """Is made with what differs between processes, unless these begin alike."""

    def made(self) -> None:
        self.bias = np.random.normal(size=6) + random.random() + hash("text") % 100 / 100

    def noise(self) -> Any:
        return self.bias


STATEFUL = (Drawing, Learning, OfModule, OfClass, OfDefault, OfRandom, OfNumpy, OfClock)

"""What a robot is sent once, or with each message if a host serves many robots."""

from typing import Any

from fleet_tools.baselines.federated.streaming.config import StreamingConfig
from fleet_tools.baselines.merging.methods.options import MethodOptions, keyword_arguments
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.config.values import NonNegative, Value


class Assignment(Value):
    """A robot's data, and how it trains on them.

    Attributes:
        robot: Number of the robot, from 0.
        data: Folders of the datasets.
        episodes: Indices of the robot's episodes among the successful ones of the datasets.
        content_digest: Hash of these episodes.
        blueprint: Blueprint of the policy.
        training: Configuration of training, with the robot's own seed.
        initialization: Seed of the initial weights.
        moment_noise: Noise in answers about moments, see `LocalDataHolder`.
        proximal: Weight of the proximal term, see `training.loop.train`.
        streaming: How the robot aligns its policy and sends it, in a streaming fleet.
        method, options: The merging method of a streaming fleet.
    """

    robot: int
    data: tuple[str, ...]
    episodes: tuple[int, ...]
    content_digest: str
    blueprint: Blueprint
    training: TrainingConfig
    initialization: int
    moment_noise: NonNegative = 0.0
    proximal: NonNegative = 0.0
    streaming: StreamingConfig | None = None
    method: str = ""
    options: MethodOptions = {}

    def method_options(self) -> dict[str, Any]:
        """Returns the keyword arguments of the method."""
        return keyword_arguments(self.method, self.options)

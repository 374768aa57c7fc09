"""Configuration of an evaluation."""

from typing import Self

import pydantic

from fleet_tools.config.cameras import SensorName
from fleet_tools.config.options import OptionGroup
from fleet_tools.config.values import Count, Seed
from fleet_tools.envs.mode_options import OptionalObsMode
from fleet_tools.policies.sources import PolicyName, Track
from fleet_tools.robot.arm import DEFAULT_ROBOT

PROTOCOL = "v1"
"""The protocol, unless another one is named."""
PROTOCOL_NAME = "tool-use"
"""The name that all versions of the protocol share."""


class EvaluationConfig(OptionGroup):
    """The policy of an evaluation, and the trials of its protocol that are run."""

    policy: PolicyName
    protocol: str = PROTOCOL
    """Name of a protocol, or path of your own; or folder of a result, for the protocol that it
    follows."""
    level: str | None = None
    """Level of the protocol, such as pushes (default: the first, nominal)."""
    tool: str | None = None
    """Only this task of the protocol, by its tool."""
    task: str | None = None
    """Only this task of the protocol, by name or by the path of its YAML file; or a task of your
    own, by this path, in the scenes of the protocol."""
    split: str | None = None
    """Only this split of the protocol."""
    scenes: Count | None = None
    """Number of first scenes of each task and split (default: all)."""
    name: str | None = None
    """Name of the policy in tables (default: as given; of a checkpoint its file name, or for
    best.safetensors the name of the training run's folder)."""
    track: Track = "observations"
    """Inputs of a checkpoint or a module:factory: in the track observations, only observations, in
    a separate process; in the track privileged, the environment, too."""
    training_seed: Seed | None = None
    """Seed of the policy's training run, if it is one of several of the same name, which
    leaderboards average."""
    obs_mode: OptionalObsMode = None
    """Observation mode (default: the policy's own choice, or else state)."""
    sensors: SensorName | None = None
    """Depth cameras in the evaluation (default: the level's, or else ideal ones). They may be
    others than in training, and need observations of cameras unless they are ideal."""

    robot: str = DEFAULT_ROBOT
    """Robot of the package by name."""

    @pydantic.model_validator(mode="after")
    def _one_task(self) -> Self:
        if self.tool is not None and self.task is not None:
            raise ValueError("give either --tool or --task, or neither for all tasks")
        return self

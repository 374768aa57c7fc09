"""The configuration of a SuperNode: its number, its own data, and its protection."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from fleet_tools.baselines.federated.messages import Assignment
from fleet_tools.errors import ConfigError

PARTITION, PARTITIONS, DATA = "partition-id", "num-partitions", "data"
PROTECTION, CLIP = "protection", "clip"
"""Keys of a SuperNode's `--node-config`, beside the two of Flower's simulations."""

PROTECTIONS = ("none", "sums", "noise")
"""See `flower.protection`."""


@dataclass(frozen=True)
class Node:
    """A node.

    Attributes:
        partition: Its number, from 0.
        partitions: Number of nodes.
        data: Folders of its own datasets; empty if it opens the folders in assignments.
        protection: One of `PROTECTIONS` that its robot requires; "none" lets the server choose.
        clip: Largest norm to which "noise" may clip the change of its robot; None for any.
    """

    partition: int
    partitions: int
    data: tuple[str, ...] = ()
    protection: str = "none"
    clip: float | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Reads the configuration of a SuperNode.

        Raises:
            ConfigError: It lacks a key, or a value does not fit.
        """
        partition, partitions = config.get(PARTITION, -1), config.get(PARTITIONS, 0)
        whole = type(partition) is int and type(partitions) is int  # no booleans
        if not (whole and 0 <= partition < partitions):
            raise ConfigError(
                f"This node's configuration is {dict(config)}. Start each flower-supernode with "
                f"--node-config '{PARTITION}=0 {PARTITIONS}=2' and so on: its number, from 0, and "
                "the number of nodes."
            )
        data = config.get(DATA, "")
        if not isinstance(data, str):
            raise ConfigError(f"`{DATA}` of this node is {data!r}; expected folders of datasets.")
        protection, clip = config.get(PROTECTION, "none"), config.get(CLIP)
        if protection not in PROTECTIONS:
            raise ConfigError(
                f"`{PROTECTION}` of this node is {protection!r}; known: {', '.join(PROTECTIONS)}."
            )
        if clip is not None and not (isinstance(clip, int | float) and 0 < clip < math.inf):
            raise ConfigError(f"`{CLIP}` of this node is {clip!r}; expected: a positive number.")
        folders = tuple(filter(None, data.split(os.pathsep)))
        return cls(partition, partitions, folders, protection, clip)

    def owns(self, robot: int) -> bool:
        """Whether a robot is the node's own."""
        return robot % self.partitions == self.partition

    def localized(self, assignment: Assignment) -> Assignment:
        """Returns an assignment with the node's own data, if it has any.

        Raises:
            ConfigError: The robot is not the node's own.
        """
        if not self.owns(assignment.robot):
            raise ConfigError(
                f"Robot {assignment.robot} is not one of the node with {PARTITION}="
                f"{self.partition} and {PARTITIONS}={self.partitions}."
            )
        return assignment.model_copy(update={"data": self.data}) if self.data else assignment

    def require_protection(self, given: str, norm: float = 0.0) -> None:
        """Raises an error unless the node answers messages under a protection.

        Args:
            given: Protection of the message.
            norm: With "noise", the norm of the clipping.

        Raises:
            ConfigError: The node requires another protection, or a smaller norm.
        """
        if self.protection not in ("none", given):
            raise ConfigError(
                f"This node answers only with {PROTECTION}={self.protection}, but the message has "
                f'{given}. Start the run with `protection="{self.protection}"`.'
            )
        if given == "noise" and self.clip is not None and not norm <= self.clip:
            raise ConfigError(
                f"This node clips to at most {self.clip:g}, but the server requests {norm:g}. "
                f"Start the run with `clip={self.clip:g}`."
            )

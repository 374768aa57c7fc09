"""What the configuration of a SuperNode says: its number, and its own data."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from fleet_tools.baselines.federated.messages import Assignment
from fleet_tools.errors import ConfigError

PARTITION, PARTITIONS, DATA = "partition-id", "num-partitions", "data"
"""Keys of a SuperNode's `--node-config`; the first two are those of Flower's simulations."""


@dataclass(frozen=True)
class Node:
    """A node.

    Attributes:
        partition: Its number, from 0.
        partitions: Number of nodes.
        data: Folders of its own datasets; empty if it opens those that assignments name.
    """

    partition: int
    partitions: int
    data: tuple[str, ...] = ()

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
            raise ConfigError(f"`{DATA}` of this node is {data!r}, not folders of datasets.")
        return cls(partition, partitions, tuple(filter(None, data.split(os.pathsep))))

    def owns(self, robot: int) -> bool:
        """Whether a robot is the node's own."""
        return robot % self.partitions == self.partition

    def localized(self, assignment: Assignment) -> Assignment:
        """Returns an assignment whose data are the node's own, if it has such.

        Raises:
            ConfigError: The robot is not the node's own.
        """
        if not self.owns(assignment.robot):
            raise ConfigError(
                f"Robot {assignment.robot} is not one of the node with {PARTITION}="
                f"{self.partition} and {PARTITIONS}={self.partitions}."
            )
        return assignment.model_copy(update={"data": self.data}) if self.data else assignment

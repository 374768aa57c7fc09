"""What the configuration of a SuperNode says: its number, its own data, and its secret."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fleet_tools.baselines.federated.assignment import Assignment
from fleet_tools.baselines.federated.privacy.seeds import KEY_BYTES
from fleet_tools.errors import ConfigError

PARTITION, PARTITIONS, DATA, SECRET = "partition-id", "num-partitions", "data", "secret"
"""Keys of a SuperNode's `--node-config`; the first two are those of Flower's simulations."""


@dataclass(frozen=True)
class Node:
    """A node.

    Attributes:
        partition: Its number, from 0.
        partitions: Number of nodes.
        data: Folders of its own datasets; empty if it opens those that assignments name.
        secret: File with its secret, which it shows to nobody; empty if it has none.
    """

    partition: int
    partitions: int
    data: tuple[str, ...] = ()
    secret: str = ""

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
        data, secret = config.get(DATA, ""), config.get(SECRET, "")
        if not isinstance(data, str):
            raise ConfigError(f"`{DATA}` of this node is {data!r}, not folders of datasets.")
        if not isinstance(secret, str):
            raise ConfigError(f"`{SECRET}` of this node is {secret!r}, not the name of a file.")
        return cls(partition, partitions, tuple(filter(None, data.split(os.pathsep))), secret)

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

    def secret_of(self, assignment: Assignment) -> bytes | None:
        """Returns the secret key of a robot; None if its fleet has no masks.

        Raises:
            ConfigError: Its fleet has masks, and the node has no secret, or its file is damaged.
        """
        if assignment.streaming is None or not assignment.streaming.neighbours:
            return None
        how = f"Write 32 random bytes into a file, and add {SECRET}=FILE to --node-config."
        if not self.secret:
            raise ConfigError(
                "This node has no secret, and masks that follow from the server's seeds would hide "
                f"nothing from it. {how}"
            )
        try:
            content = Path(self.secret).read_bytes()
        except OSError as error:
            raise ConfigError(f"The secret of this node cannot be read: {error}. {how}") from error
        if len(content) != KEY_BYTES:
            raise ConfigError(f"The secret of this node has {len(content)} bytes. {how}")
        robot = f"robot {assignment.robot}".encode()
        return hashlib.blake2b(robot, key=content, digest_size=KEY_BYTES).digest()

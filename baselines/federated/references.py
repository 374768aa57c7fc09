"""Names of the fleets with which another one is compared."""

from typing import Literal, get_args

ReferenceName = Literal["joint", "single", "task_specific"]
"""See `fleet_tools.baselines.federated.config.reference`."""

REFERENCES: tuple[str, ...] = get_args(ReferenceName)

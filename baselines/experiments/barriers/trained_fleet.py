"""A finished fleet, read from its folder: its configuration, its data and its policies."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Self

from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.progress import FleetProgress
from fleet_tools.baselines.federated.record import STATE, FleetRunSpec, load_progress
from fleet_tools.baselines.training.state import Tensors, TrainingError
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError
from fleet_tools.storage.run_folder import CONFIG, read_spec


@dataclass(frozen=True, eq=False)
class TrainedFleet:
    """A finished fleet.

    Attributes:
        folder: Folder of the fleet.
        plan: Configuration and data of the fleet.
        steps: Number of steps that each robot learned from in the last round, by robot number.
        policies: Weights of each robot before the last merge, by robot number.
    """

    folder: Path
    plan: FleetPlan
    steps: Mapping[int, int]
    policies: Mapping[int, Tensors]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Reads the folder of a fleet.

        Raises:
            TrainingError: The folder holds no fleet, the fleet is not finished, its datasets have
                changed, or fewer than two robots were merged in the last round.
            FleetToolsError: Its datasets cannot be read.
        """
        spec, progress = _read_finished(folder)
        if len(progress.robot_weights) < 2:
            raise TrainingError(
                f"In the last round of {folder}, {len(progress.robot_weights)} robot was merged; a "
                "line requires two. Give a fleet with more `robots`, or a larger `participation`."
            )
        plan = FleetPlan.of(spec.config)
        if plan.content_digest != spec.content_digest:
            raise TrainingError(
                f"{', '.join(plan.config.data)} holds other episodes than those from which the "
                f"fleet in {folder} learned. Restore them, or train the fleet again."
            )
        steps = {
            each.robot: each.steps for each in progress.rounds[-1].robots if each.steps is not None
        }
        return cls(folder, plan, steps, progress.robot_weights)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """All pairs of its robots."""
        return list(combinations(sorted(self.policies), 2))

    @cached_property
    def digest(self) -> str:
        """Hash of the fleet's configuration, data and policies."""
        digest = hashlib.blake2b(digest_size=8)
        for name in (CONFIG, STATE):
            digest.update((self.folder / name).read_bytes())
        return digest.hexdigest()

    def config_with(self, method: str, options: Mapping[str, str]) -> FleetConfig:
        """Returns the configuration of the fleet with another merging method.

        Raises:
            ConfigError: There is no such method, it has no such option, or its result is not a
                permutation.
        """
        changes = {"method": method, "options": dict(options)}
        data = self.plan.config.model_dump(mode="json") | changes
        config = parse(FleetConfig, data, f"{self.folder} with {method}")
        if method == "fleet_merge_soft" or config.method_options().get("soft"):
            raise ConfigError(
                f"{method} permutes softly, which makes other policies of the trained ones, and no "
                "line leads from one trained policy to the other. Leave it out, or give "
                "fleet_merge."
            )
        return config


def _read_finished(folder: Path) -> tuple[FleetRunSpec, FleetProgress]:
    if not (folder / CONFIG).is_file():
        raise TrainingError(
            f"{folder} is not a fleet: it has no {CONFIG}. Give the --output of "
            "`python -m fleet_tools.baselines.fleet`."
        )
    spec = read_spec(folder, FleetRunSpec, TrainingError)
    progress = load_progress(folder) if (folder / STATE).is_file() else None
    done = 0 if progress is None else len(progress.rounds)
    if progress is None or done < spec.config.rounds:
        raise TrainingError(
            f"The fleet in {folder} has run {done} of {spec.config.rounds} rounds. Finish it first "
            "with the command that began it."
        )
    return spec, progress

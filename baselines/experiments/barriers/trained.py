"""A finished fleet, read back: its robots' policies, and what they learned from."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path

from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.federated.plan import Plan
from fleet_tools.baselines.federated.record import STATE, Experiment, Record, load
from fleet_tools.baselines.training.errors import TrainingError
from fleet_tools.baselines.training.record import CONFIG
from fleet_tools.baselines.training.state import Tensors
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Trained:
    """A finished fleet.

    Attributes:
        folder: Where it is.
        plan: What it followed from.
        steps: That each robot learned from in the last round.
        policies: Each robot's weights before the last merge.
    """

    folder: Path
    plan: Plan
    steps: Mapping[int, int]
    policies: Mapping[int, Tensors]

    @classmethod
    def read(cls, folder: Path) -> "Trained":
        """Reads the folder of a fleet.

        Raises:
            TrainingError: There is none, it is not finished, its data have changed, or fewer than
                two robots were merged at its end.
            FleetToolsError: Its data cannot be read.
        """
        try:
            text = (folder / CONFIG).read_text()
            experiment = parse(Experiment, json.loads(text), str(folder))
        except (OSError, ValueError) as error:  # ConfigError is one, too
            raise TrainingError(
                f"{folder} is no fleet ({error}). Give the --output of "
                "`python -m fleet_tools.baselines.fleet`."
            ) from None
        stored = (folder / STATE).is_file()
        record = load(folder) if stored else Record()
        if len(record.told) < experiment.config.rounds:
            raise TrainingError(
                f"The fleet in {folder} has played {len(record.told)} of "
                f"{experiment.config.rounds} rounds. Let it finish first."
            )
        if len(record.robots) < 2:
            raise TrainingError(
                f"In the last round of {folder}, {len(record.robots)} robot was merged, and a line "
                "needs two. Give a fleet of more `robots`, or a larger `participation`."
            )
        plan = Plan.of(experiment.config)
        if plan.content_digest != experiment.content_digest:
            raise TrainingError(
                f"{', '.join(plan.config.data)} holds other episodes than those that the fleet in "
                f"{folder} learned from. Restore them, or train it again."
            )
        steps = {each.robot: each.steps for each in record.told[-1].robots}
        return cls(folder, plan, steps, record.robots)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """All of its robots."""
        return list(combinations(sorted(self.policies), 2))

    @cached_property
    def digest(self) -> str:
        """Of what it did, on which data, and what came of it."""
        digest = hashlib.blake2b(digest_size=8)
        for name in (CONFIG, STATE):
            digest.update((self.folder / name).read_bytes())
        return digest.hexdigest()

    def merging_by(self, method: str, options: Mapping[str, str]) -> FleetConfig:
        """Returns what it would have done with another method.

        Raises:
            ConfigError: There is no such method, it has no such option, or it cannot be used here.
        """
        changed = {"method": method, "options": dict(options)}
        data = self.plan.config.model_dump(mode="json") | changed
        config = parse(FleetConfig, data, f"{self.folder} by {method}")
        if method == "fleet_merge_soft" or config.method_options().get("soft"):
            raise ConfigError(
                f"{method} permutes softly, and what it permutes is another policy: no line "
                "between the two that were trained. Leave it out, or take fleet_merge."
            )
        return config

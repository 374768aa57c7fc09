"""The content of a training run's `config.json`: everything on which the result depends."""

from typing import Annotated, Literal

import pydantic

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.training.config import Criterion, TrainingConfig
from fleet_tools.config.values import Count, CountOrZero, Number
from fleet_tools.storage.provenance import installed_packages
from fleet_tools.storage.record_folder import Document

VERSION = 1
"""Version of the content and meaning of `config.json`."""


class TrainingRunSpec(Document):
    """The content of `config.json`.

    Attributes:
        version: `VERSION`.
        datasets: Folders of the demonstrations, as given.
        episodes: Number of their episodes.
        content_digest: Hash of their episodes.
        blueprint: Blueprint of the policy.
        training: Configuration of training.
        validation_fraction: Fraction of the episodes that are used for validation, and not for
            training.
        rollouts: Number of validation scenes of each task in which the policy is evaluated.
        rollout_every: Number of epochs between these evaluations.
        teacher: Hash of the policy whose actions are imitated; None for those of the episodes.
        choose_by: Criterion by which the best weights are chosen.
        device: Device of the computation.
        threads: Number of threads; another number rounds sums differently.
        packages: Versions of the packages on which the bits of the result depend.
    """

    version: Literal[1] = VERSION
    datasets: tuple[str, ...]
    episodes: Count
    content_digest: str
    blueprint: Blueprint
    training: TrainingConfig
    validation_fraction: Annotated[Number, pydantic.Field(ge=0, lt=1)]
    rollouts: CountOrZero
    rollout_every: Count
    teacher: str | None
    choose_by: Criterion
    device: Literal["cpu", "cuda"]
    threads: Count
    packages: dict[str, str]

    def essence(self) -> dict[str, object]:
        """Returns what must not differ within one run, by its name in messages."""
        parts = self.model_dump(mode="json")
        training = {f"training.{name}": value for name, value in parts.pop("training").items()}
        blueprint = parts.pop("blueprint")  # the rest of it follows from the data
        return {
            **parts,
            **training,
            "the policy's config": blueprint["config"],
            "the hash of its scaling": self.blueprint.scaling.rounded_digest(),
        }


def packages() -> dict[str, str]:
    """Returns the versions of the packages on which the bits of training depend."""
    return installed_packages(("numpy", "torch"))

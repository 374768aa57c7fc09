"""The content of a fleet's `config.json`: everything on which the result depends."""

from typing import Literal, Self

from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.training.run import packages
from fleet_tools.storage.record_folder import Document

VERSION = 1
"""Version of the content and meaning of `config.json`."""


class FleetRunSpec(Document):
    """The content of `config.json`.

    Attributes:
        version: `VERSION`.
        config: Configuration of the fleet.
        content_digest: Hash of all episodes of the datasets.
        blueprint: Blueprint of all policies.
        packages: Versions of the packages on which the bits of the result depend.
    """

    version: Literal[1] = VERSION
    config: FleetConfig
    content_digest: str
    blueprint: Blueprint
    packages: dict[str, str]

    @classmethod
    def of(cls, plan: FleetPlan) -> Self:
        """Describes the run of a fleet on this machine."""
        return cls(
            config=plan.config,
            content_digest=plan.content_digest,
            blueprint=plan.blueprint,
            packages=packages(),
        )

    def essence(self) -> dict[str, object]:
        """Returns what must not differ within one run, by its name in messages."""
        parts = self.model_dump(mode="json", exclude={"blueprint"})  # it follows from the rest
        config = parts.pop("config")
        training = {f"training.{name}": value for name, value in config.pop("training").items()}
        return {**parts, **config, **training}

"""Models with one defect each, made from models that ship; what each is to be told."""

from dataclasses import dataclass, replace

from support.model_defects import Change

from fleet_tools.assets.families import find_family
from fleet_tools.assets.model_description import ModelDescription


@dataclass(frozen=True)
class BadModel:
    """A model with a defect."""

    name: str
    family: str
    member: str
    change: Change
    finding: str

    def make(self) -> ModelDescription:
        """Returns the model."""
        return replace(self.change(find_family(self.family).member(self.member)), name=self.name)

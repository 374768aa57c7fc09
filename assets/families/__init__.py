"""Families of tools and objects that can be generated; a family's module is imported on demand.

A family is a module with the members of `Family`. A new one is added to `FamilyName`.
"""

import importlib
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:  # --help answers without numpy
    import numpy as np

    from fleet_tools.assets.model_description import ModelDescription

FamilyName = Literal["hammer", "knife", "nail", "nut", "pair", "slab", "spatula", "wrench"]

FAMILIES: tuple[FamilyName, ...] = typing.get_args(FamilyName)


class Family(Protocol):
    """The interface of a family's module; each family has a class of parameters of its own.

    Attributes:
        CATALOGUE: Parameters of the members that ship with the package, by name.
    """

    CATALOGUE: Mapping[str, Any]

    def build(self, params: Any, name: str) -> "ModelDescription":
        """Returns the model with given parameters."""
        ...

    def sample(self, rng: "np.random.Generator") -> Any:
        """Returns parameters of a random plausible member."""
        ...


def find_family(name: FamilyName) -> Family:
    """Imports the module of a family."""
    return typing.cast(Family, importlib.import_module(f"{__name__}.{name}"))

"""The families that can be generated, as data; a family's module is imported when it is asked for.

A family module offers

    CATALOGUE: dict[str, Params]    the members that ship, by name
    build(params, name) -> Model    the geometry
    sample(rng) -> Params           a random believable member

so a new family is one module and one line below.
"""

import importlib
from types import ModuleType

FAMILIES = (
    "hammer",
    "knife",
    "nail",
    "nut",
    "pair",
    "slab",
    "spatula",
    "wrench",
)


def family_module(family: str) -> ModuleType:
    """The module of a family named in `FAMILIES` (ImportError otherwise)."""
    return importlib.import_module(f".{family}", __package__)

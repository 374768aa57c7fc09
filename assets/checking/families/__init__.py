"""Rules of families, one module for each, with the reason of every bound.

Bounds on shapes are where the expert begins to fail, which `benchmarks/model_limits.py` measures.
A family of one's own has the general rules alone, and the expert's trial.
"""

import importlib

from fleet_tools.assets.checking.families.general import OBJECT_RULES, RULES, TOOL_RULES
from fleet_tools.assets.checking.rule import Rule
from fleet_tools.assets.families import FAMILIES
from fleet_tools.sim.catalog import Kind


def find_rules(kind: Kind, family: str) -> tuple[Rule, ...]:
    """Returns the rules of a family: the general ones, and its own if it is of the package."""
    general = RULES + (TOOL_RULES if kind == "tool" else OBJECT_RULES)
    if family not in FAMILIES:
        return general
    return general + importlib.import_module(f"{__name__}.{family}").RULES

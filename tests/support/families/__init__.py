"""What is tested of each family: the module of this folder with its name says it.

It has `check`, which models that ship and random ones pass; `IMPOSSIBLE`, changes of the parameters
of its `MEMBER` that are refused; and `BAD_MODELS`, which break its rules. Nothing else lists it.
"""

import importlib
import pkgutil
from types import ModuleType

from support.bad_models import BadModel

FAMILIES: dict[str, ModuleType] = {
    module.name: importlib.import_module(f"{__name__}.{module.name}")
    for module in pkgutil.iter_modules(__path__)
}
"""The modules of this folder, by family."""

BAD_MODELS: tuple[BadModel, ...] = tuple(
    bad for module in FAMILIES.values() for bad in module.BAD_MODELS
)
"""Every rule is broken by at least one of them."""

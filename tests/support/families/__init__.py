"""What is tested of each family: the module of this folder with its name says it.

It has `check`, which models that ship and random ones pass; `MEMBER`, one of its members; and
`BAD_MODELS`, which break its rules. Nothing else lists it.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from support.bad_models import BadModel
from support.model_defects import held_in

from fleet_tools.assets.families import find_family
from fleet_tools.config.geometry import Pose
from fleet_tools.studio.checking.general_rules import hand_rules

FAMILIES: dict[str, ModuleType] = {
    module.name: importlib.import_module(f"{__name__}.{module.name}")
    for module in pkgutil.iter_modules(__path__)
}
"""The modules of this folder, by family."""


def badly_held(family: str, member: str) -> Iterator[BadModel]:
    """Yields a tool in wrong hands: one for each rule that compares the grasp with the use."""
    alignment = find_family(family).alignment
    if alignment is None:
        return
    made = find_family(family).member(member)
    grasps = {
        "tilt against the direction of use": Pose(rpy_deg=(180.0, 0.0, 0.0)),
        "sideways tilt": Pose(rpy_deg=(90.0, 0.0, 0.0)),
        "turn away from the working end": Pose(rpy_deg=(0.0, 0.0, 180.0)),
        "distance from the working end": Pose(
            translation_m=made.keypoints[alignment.working_end[0]].position
        ),
    }
    for rule in hand_rules(alignment):
        name = f"{family}_{rule.name.replace(' ', '_')}"
        yield BadModel(name, family, member, held_in(grasps[rule.name]), rule.name)


BAD_MODELS: tuple[BadModel, ...] = (
    *(bad for module in FAMILIES.values() for bad in module.BAD_MODELS),
    *(bad for name, module in FAMILIES.items() for bad in badly_held(name, module.MEMBER)),
)
"""Every rule is broken by at least one of them."""

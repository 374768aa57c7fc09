"""Success predicates of a task as English sentences."""

import xml.etree.ElementTree as ET
from collections.abc import Callable

from fleet_tools.config.predicates import (
    AxisUpright,
    CausedByPart,
    Contact,
    JointDisplacement,
    KeypointOverPlace,
    KeypointRaised,
    KeypointsNear,
    KeypointsParted,
    Predicate,
    Still,
    UserFunction,
)
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.sim.catalog import find_model, model_names

_JOINT_UNITS = {"prismatic": "m", "revolute": "rad", "continuous": "rad", "screw": "rad"}


def sentences(task: TaskConfig) -> list[str]:
    """Returns a sentence for each success predicate of a task, see `sentence`."""
    units = joint_units(task)
    return [sentence(each, lambda joint: units.get(joint, "m or rad")) for each in task.success]


def joint_units(task: TaskConfig) -> dict[str, str]:
    """Returns the units of the joints of the task's first object, by name."""
    first = model_names("object", task.object_family, task.assets)[0]
    model = find_model("object", task.object_family, first, task.assets)
    joints = ET.parse(model.file).iter("joint")
    kinds = {joint.attrib["name"]: joint.attrib["type"] for joint in joints}
    return {name: _JOINT_UNITS[kind] for name, kind in kinds.items() if kind in _JOINT_UNITS}


def sentence(predicate: Predicate, joint_unit: Callable[[str], str]) -> str:
    """Returns the demand of a predicate in English, as Markdown without a full stop.

    Args:
        predicate: The predicate.
        joint_unit: Returns the unit of a joint of the object, "m" or "rad"; "" leaves it out.
    """
    match predicate:
        case JointDisplacement(joint=joint, at_least=least):
            measure = amount(least, joint_unit(joint))
            return f"the object's joint `{joint}` has moved by at least {measure}"
        case KeypointsNear(tool=tool, object=object, within_m=within):
            return f"the tool's `{tool}` is within {amount(within)} of the object's `{object}`"
        case KeypointOverPlace(object=object, within_m=within):
            return f"the object's `{object}` is over the marked place, within {amount(within)}"
        case KeypointRaised(object=object, at_least_m=least):
            return f"the object's `{object}` has risen by at least {amount(least)}"
        case KeypointsParted(objects=(one, other), at_least_m=least):
            return (
                f"the distance between the object's `{one}` and `{other}` has grown by at least "
                f"{amount(least)}"
            )
        case AxisUpright(object=(start, end), within_deg=within):
            return (
                f"the object's axis from `{start}` to `{end}` points upwards within "
                f"{amount(within, 'degrees')}"
            )
        case Contact(between=(one, other), present=present):
            return f"{_body(one)} and {_body(other)} are {'' if present else 'not '}in contact"
        case Still(seen_from=frame, below_m_s=limit):
            frame = {"world": "the world", "end_effector": "the end effector"}[frame]
            return f"every link of the object moves slower than {limit:g} m/s, seen from {frame}"
        case CausedByPart(part=part, change=change):
            return f"by the tool's `{part}` itself: {sentence(change, joint_unit)}"
        case UserFunction(function=function):
            return f"the function `{function}` holds"
    raise TypeError(f"no sentence for {type(predicate).__name__}")


def amount(value: float, unit: str = "m") -> str:
    """Returns a value with its unit; lengths below a metre in mm."""
    if unit == "m" and value < 1:
        return f"{1000 * value:g} mm"
    return f"{value:.4g} {unit}".rstrip()


def _body(name: str) -> str:
    link = name.removeprefix("object/")
    return f"the {name}" if link == name else f"the object's link `{link}`"

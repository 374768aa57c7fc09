"""Other plans for the expert: further uses of a tool than the task file's."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cheats.motion import Actions, DrivenArm

from fleet_tools.config.expert import Advance, Expert, Keyframe, Rotate, Stay, Translate


def translate(
    *by_m: float, frame: Literal["world", "object", "end_effector"] = "object", speed: float = 0.3
) -> Keyframe:
    """Returns a keyframe after a translation, m."""
    x, y, z = by_m
    return Keyframe(motion=Translate(type="translate", by_m=(x, y, z), frame=frame), speed=speed)


def advance(axis: tuple[str, str], by_m: float, speed: float = 0.3) -> Keyframe:
    """Returns a keyframe after a translation along an axis of the tool."""
    return Keyframe(motion=Advance(type="advance", axis=axis, by_m=by_m), speed=speed)


def rotate(
    angle_deg: float, about: str, axis: tuple[str, str] | None = None, speed: float = 0.4
) -> Keyframe:
    """Returns a keyframe after a turn about an axis of the object."""
    motion = Rotate(type="rotate", angle_deg=angle_deg, about=about, axis=axis)
    return Keyframe(motion=motion, speed=speed)


def stay(for_s: float) -> Keyframe:
    """Returns a keyframe at which the arm rests."""
    return Keyframe(motion=Stay(type="stay", for_s=for_s))


def edited(
    expert: Expert,
    *,
    terms: Mapping[int, Mapping[str, Any]] | None = None,
    more: Sequence[Mapping[str, Any]] = (),
    speed: float | None = None,
    before: Sequence[Keyframe] | None = None,
    after: Sequence[Keyframe] | None = None,
) -> Expert:
    """Returns an expert with another plan.

    Args:
        expert: The task's expert.
        terms: Changed keys of keypoint terms, by the index of the term.
        more: Further keypoint terms.
        speed: Speed on the way to the actuation pose.
        before: Other keyframes before it.
        after: Other keyframes after it.
    """
    data = expert.model_dump()
    constraints = [dict(term) for term in data["actuation"]["constraints"]]
    for i, changes in (terms or {}).items():
        constraints[i] |= changes
    data["actuation"]["constraints"] = [*constraints, *more]
    if speed is not None:
        data["actuation"]["speed"] = speed
    for name, keyframes in (("before", before), ("after", after)):
        if keyframes is not None:
            data[name] = [keyframe.model_dump() for keyframe in keyframes]
    return Expert.model_validate(data)


def follow_edited(arm: DrivenArm, **changes: Any) -> Actions:
    """Acts like the task's expert with another plan; `changes` are arguments of `edited`."""
    yield from arm.follow_expert(edited(arm.env.task.expert, **changes))


def slowed(expert: Expert, factor: float) -> Expert:
    """Returns an expert with speeds multiplied by a factor in (0, 1]."""
    data = expert.model_dump()
    for step in (data["actuation"], *data["before"], *data["after"]):
        step["speed"] *= factor
    return Expert.model_validate(data)


def half_speed(arm: DrivenArm) -> Actions:
    """The expert's motion at half its speed."""
    yield from arm.follow_expert(slowed(arm.env.task.expert, 0.5))

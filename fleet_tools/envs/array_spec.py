"""Specifications of arrays (kind, shape, dtype, unit, frame), and checks against them.

An `ArraySpec` is the one description of an array on its whole way: an environment declares it,
policies are told it, headers of datasets and checkpoints store it, exports translate it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import gymnasium
import numpy as np
import pydantic
from numpy.typing import ArrayLike

from fleet_tools.config.control import StepBounds
from fleet_tools.config.values import Positive, Value, differences
from fleet_tools.errors import InvalidActionError, shown
from fleet_tools.perception.camera_view import CHANNELS, SEGMENTS

if TYPE_CHECKING:
    from fleet_tools.envs.recorded_env import EnvInterface

DTYPES = (
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64"),
)
"""Names of the types that arrays of an episode may have."""

MAX_AXES, MAX_LENGTH = 8, 2**31 - 1
"""Largest number of axes, and length of an axis."""

Dtype = Annotated[str, pydantic.Field(pattern=f"^({'|'.join(DTYPES)})$")]
"""One of `DTYPES`."""

Length = Annotated[int, pydantic.Field(ge=0, le=MAX_LENGTH)]
"""Length of an axis."""

Kind = Literal[
    "state",  # numbers of the robot or the world
    "one_hot",
    "keypoints",  # (n, 3)
    "masked_keypoints",  # (n, 4): the point, and 1 if it is there, else 0
    "points",  # (n, 4), a point cloud: the point, and a mask
    "rgb",  # (height, width, 3)
    "depth",  # (height, width)
    "segmentation",  # (height, width)
    "camera",  # intrinsics or pose of a camera
    "action",
]
"""Kinds of arrays. The kind decides how an array is stored, scaled, encoded and exported."""

LIMITS: dict[Kind, tuple[float, float]] = {
    "one_hot": (0, 1),
    "rgb": (0, 255),
    "depth": (0, np.inf),  # where nothing is in range
    "segmentation": (0, len(SEGMENTS) - 1),
    "action": (-1, 1),
}
"""Lowest and highest number by kind; arrays of other kinds have no limits."""


class ArraySpec(Value):
    """An array of each step.

    Attributes:
        kind: What it is.
        shape: Its shape.
        dtype: Name of its type, one of `DTYPES`.
        unit: Unit of its numbers.
        frame: Frame of its numbers; None where they have none.
        entries: Names along the first axis, where they have names.
        scale: Meaning of an entry of 1, in the unit, where it is not 1.
        rate_hz: Of actions, how many there are in a second.
    """

    kind: Kind
    shape: Annotated[tuple[Length, ...], pydantic.Field(max_length=MAX_AXES)]
    dtype: Dtype
    unit: str
    frame: str | None
    entries: tuple[str, ...] = ()
    scale: tuple[float, ...] = ()
    rate_hz: Positive | None = None

    @property
    def is_image(self) -> bool:
        """Whether it is an image."""
        return self.kind in CHANNELS

    @property
    def limits(self) -> tuple[float, float]:
        """Lowest and highest allowed number; infinite where there is no limit."""
        return LIMITS.get(self.kind, (-np.inf, np.inf))

    @property
    def space(self) -> gymnasium.spaces.Box:
        """The space of the array."""
        return gymnasium.spaces.Box(*self.limits, self.shape, np.dtype(self.dtype).type)


def masked_keypoints(rows: int) -> ArraySpec:
    """Describes keypoints of a part in a layout common to all tasks, (rows, 4)."""
    return ArraySpec(
        kind="masked_keypoints",
        shape=(rows, 4),
        dtype="float32",
        unit="m, mask: 1 there, 0 not",
        frame="end effector",
    )


Layout = Mapping[str, ArraySpec]
"""Entries of an observation by name, as the header of a dataset describes them."""


def describe_action(env: "gymnasium.Env | EnvInterface") -> ArraySpec:
    """Describes the actions of an environment of this package."""
    from fleet_tools.envs.recorded_env import interface_of

    return interface_of(env).action_spec


def describe_observation(env: "gymnasium.Env | EnvInterface") -> dict[str, ArraySpec]:
    """Describes the entries of an observation of an environment of this package, by name."""
    from fleet_tools.envs.recorded_env import interface_of

    return dict(interface_of(env).features)


def describe_layout(layout: Layout) -> dict[str, object]:
    """Returns all fields of all entries, by descriptions such as "the shape of 'point_cloud'"."""
    return {
        f"the {field} of {name!r}": value
        for name, array in layout.items()
        for field, value in array
    }


def layout_differences(read: Layout, offered: Layout) -> list[str]:
    """Lists the differences of two layouts that matter to a policy, sorted."""
    found = [f"there is no {name!r}" for name in read if name not in offered]
    common = {name: offered[name] for name in read if name in offered}
    expected = describe_layout({name: read[name] for name in common})
    return sorted(found + differences(describe_layout(common), expected))


def misfits(layout: Layout, arrays: Mapping[str, object]) -> list[str]:
    """Lists the entries of a layout that arrays lack, or have in another shape or dtype."""
    found = []
    for name, spec in layout.items():
        value = arrays.get(name)
        if not isinstance(value, np.ndarray):
            found.append(
                f"{name!r} is {'missing' if value is None else f'a {type(value).__name__}'}"
            )
        elif value.shape != spec.shape or value.dtype != spec.dtype:
            found.append(f"{name!r} is {value.dtype} {value.shape}, not {spec.dtype} {spec.shape}")
    return found


# --- Actions: bounded motions of the end effector, in units of the task's action bounds ---------


def action_spec(bounds: StepBounds, rate_hz: float) -> ArraySpec:
    """Returns the specification of actions: translation, then rotation vector.

    Args:
        bounds: Largest motion in one control step.
        rate_hz: Control rate.
    """
    axes = [f"{motion}_{axis}" for motion in ("translation", "rotation") for axis in "xyz"]
    return ArraySpec(
        kind="action",
        shape=(6,),
        dtype="float32",
        unit="m, rad",
        frame="end effector, as it is before the step",
        entries=tuple(axes),
        scale=tuple(action_scale(bounds).tolist()),
        rate_hz=rate_hz,
    )


def action_scale(bounds: StepBounds) -> np.ndarray:
    """Returns the motion for which each entry of an action is 1, (6,), m and rad."""
    return np.repeat([bounds.translation_m, np.deg2rad(bounds.rotation_deg)], 3)


ACTION_STEPS = 4096
"""Number of values of an entry of an action between 0 and 1: steps of 12 um and 0.004 degrees."""


def check_action(action: ArrayLike, size: int = 6) -> tuple[np.ndarray, bool]:
    """Returns the action to be executed, (size,) float32, and whether it was clipped.

    Entries are rounded to multiples of 1 / `ACTION_STEPS`: stored actions take half the room then.

    Raises:
        InvalidActionError: The action has a wrong shape or dtype, or is not finite.
    """
    try:
        array = np.asarray(action)
    except Exception as error:  # of any class, by whoever made the action
        raise InvalidActionError(
            f"Expected an action of shape ({size},); given: {shown(action)}, which is not an "
            f"array: {error}"
        ) from None
    if np.ma.is_masked(action):
        raise InvalidActionError(
            f"Expected an action without masked entries; given: {shown(action)}."
        )
    if array.shape != (size,) or array.dtype.kind not in "fiu":
        raise InvalidActionError(
            f"Expected an action of shape ({size},) with floating-point or integer numbers; given: "
            f"shape {array.shape}, dtype {array.dtype}."
        )
    if not np.isfinite(array).all():
        raise InvalidActionError(f"Expected an action of finite numbers; given: {array.tolist()}.")
    clipped = np.clip(array, -1.0, 1.0)
    # In float32, so that stored actions replay bit for bit.
    rounded = np.round(clipped * np.float64(ACTION_STEPS)) / ACTION_STEPS
    return rounded.astype(np.float32), bool((clipped != array).any())

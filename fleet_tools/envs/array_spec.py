"""Arrays of observations and actions as values: shape, dtype, unit, frame; and what differs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import gymnasium
import numpy as np
import pydantic

from fleet_tools.config.values import Positive, Value, differences

if TYPE_CHECKING:
    from fleet_tools.envs.interface import EnvInterface

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


class ArraySpec(Value):
    """An array of each step: shape and dtype, and what its entries are, in which unit and frame."""

    shape: Annotated[tuple[Length, ...], pydantic.Field(max_length=MAX_AXES)]
    dtype: Dtype
    unit: str
    frame: str | None
    entries: tuple[str, ...] = ()
    """Names along the first axis, where they have names."""
    scale: tuple[float, ...] = ()
    """Meaning of an entry of 1, in the unit, where it is not 1."""
    rate_hz: Positive | None = None
    """Of actions: how many there are in a second."""


Layout = Mapping[str, ArraySpec]
"""Entries of an observation by name, as the header of a dataset describes them."""


def describe_action(env: "gymnasium.Env | EnvInterface") -> ArraySpec:
    """Describes the actions of an environment of this package."""
    from fleet_tools.envs.interface import interface_of

    interface = interface_of(env)
    action = interface.action_entry
    return ArraySpec(
        shape=action.space.shape,
        dtype=action.space.dtype.name,
        unit=action.unit,
        frame=action.frame,
        entries=action.entries,
        scale=tuple(interface.action_scale.tolist()),
        rate_hz=interface.metadata["render_fps"],
    )


def describe_observation(env: "gymnasium.Env | EnvInterface") -> dict[str, ArraySpec]:
    """Describes the entries of an observation of an environment of this package, by name."""
    from fleet_tools.envs.interface import interface_of

    return {
        name: ArraySpec(
            shape=feature.space.shape,
            dtype=feature.space.dtype.name,
            unit=feature.unit,
            frame=feature.frame,
            entries=feature.entries,
        )
        for name, feature in interface_of(env).features.items()
    }


def describe_layout(layout: Layout) -> dict[str, object]:
    """Returns all fields of all entries, by descriptions such as "the shape of 'point_cloud'"."""
    return {
        f"the {field} of {name!r}": value
        for name, array in layout.items()
        for field, value in array
    }


def layout_differences(read: Layout, offered: Layout) -> list[str]:
    """Lists what keeps a policy that reads one layout from reading another, sorted."""
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

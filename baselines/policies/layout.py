"""What a policy reads of an observation, and the refusal of any other layout."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.errors import LayoutError
from fleet_tools.config.values import differences
from fleet_tools.dataset.header import Array
from fleet_tools.errors import UnknownNameError

Layout = Mapping[str, Array]
"""Entries of an observation by name, as a data set's header describes them."""

Kind = Literal["state", "cloud", "picture"]


def kind(name: str, array: Array) -> Kind:
    """How an entry is read: as it is (state), or through an encoder.

    Raises:
        LayoutError: No policy of this package reads such an entry.
    """
    match name.rpartition("_")[2], array.dtype, array.shape:
        case "cloud", "float32", (_, 4):
            return "cloud"
        case "rgb", "uint8", (_, _, 3):
            return "picture"
        case "cloud" | "rgb" | "depth" | "segmentation", _, _:
            pass
        case _, "float32", _:
            return "state"
    raise LayoutError(
        f"{name!r} ({_brief(array)}) is nothing that policies read: numbers in float32, point "
        "clouds (n, 4), colour pictures (height, width, 3). Name what is to be read in the "
        "config's `reads`, or collect data without it."
    )


def read_by(config: PolicyConfig, offered: Layout) -> dict[str, Array]:
    """Returns the entries that a policy reads, sorted by name.

    Args:
        config: The policy's.
        offered: The entries that there are.

    Raises:
        UnknownNameError: It reads an entry that there is not.
        LayoutError: It has no encoder for an entry, or nothing for an encoder to read.
    """
    for name in config.reads:
        if name not in offered:
            raise UnknownNameError("entry of the observation", name, offered)
    read = {name: offered[name] for name in sorted(config.reads or offered)}
    kinds = {name: kind(name, array) for name, array in read.items()}
    for what, encoder in (("cloud", "clouds"), ("picture", "pictures")):
        names = [name for name, its_kind in kinds.items() if its_kind == what]
        has_encoder = getattr(config, encoder) is not None
        if names and not has_encoder:
            raise LayoutError(
                f"The policy has no encoder for {', '.join(names)}. Give its config `{encoder}`, "
                "or name what else is to be read in `reads`."
            )
        if has_encoder and not names:
            raise LayoutError(
                f"The policy's config has `{encoder}`, and there is no {what} to encode among "
                f"{', '.join(read) or 'no entries'}. Set `{encoder}` to None, or take data that "
                "have one."
            )
    if not read:
        raise LayoutError("There is nothing to read in an observation without entries.")
    return read


def described(layout: Layout) -> dict[str, object]:
    """Returns what is said of all entries, by name, such as "the shape of 'point_cloud'"."""
    return {
        f"the {field} of {name!r}": value
        for name, array in layout.items()
        for field, value in array
    }


def require_offered(read: Layout, offered: Layout) -> None:
    """Sees to it that all entries which a policy reads are there, each described alike.

    Raises:
        LayoutError: They are not; the message names every difference.
    """
    wrong = [f"there is no {name!r}" for name in read if name not in offered]
    common = {name: offered[name] for name in read if name in offered}
    wrong += differences(described(common), described({name: read[name] for name in common}))
    if wrong:
        raise LayoutError(
            f"The policy reads another layout: {'; '.join(sorted(wrong))}. Make the environment "
            "as it was in training, or train on this one."
        )


def require_observed(read: Layout, observation: Mapping[str, np.ndarray]) -> None:
    """Sees to it that an observation holds what a policy reads, in shapes and dtypes.

    Raises:
        LayoutError: It does not; the message names every difference.
    """
    if not isinstance(observation, Mapping):
        raise LayoutError(
            f"A policy reads a mapping of arrays by name; given is a {type(observation).__name__}."
        )
    wrong = []
    for name, array in read.items():
        value = observation.get(name)
        if not isinstance(value, np.ndarray):
            given = "not there" if value is None else f"a {type(value).__name__}"
            wrong.append(f"{name!r} is {given}")
        elif value.shape != array.shape or value.dtype != array.dtype:
            wrong.append(f"{name!r} is {value.dtype} {value.shape}, not {_brief(array)}")
    if wrong:
        raise LayoutError(
            f"The observation is not what the policy reads: {'; '.join(wrong)}. It has "
            f"{', '.join(observation) or 'no entries'}."
        )


def _brief(array: Array) -> str:
    return f"{array.dtype} {array.shape}"

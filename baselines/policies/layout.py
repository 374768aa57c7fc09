"""Layouts of observations: a policy's entries, their encoders and their scaling."""

import contextlib
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import pydantic

from fleet_tools.baselines.policies.config import EncodedKind, PolicyConfig
from fleet_tools.baselines.policies.reading import NAMES
from fleet_tools.config.values import NonNegative, Number, Value
from fleet_tools.envs.array_spec import ArraySpec, Layout, layout_differences, misfits
from fleet_tools.errors import FleetToolsError, UnknownNameError, require_name

if TYPE_CHECKING:
    from fleet_tools.dataset.normalization import Statistics

Kind = Literal["state"] | EncodedKind
"""Reading of an entry: by the encoder of its kind, or as it is (state)."""

_SHOWING: tuple[str, ...] = ("keypoints", "masked_keypoints", "points", "rgb")
"""Kinds of entries that show the world, and not the robot."""

_ENCODER_KEYS: dict[EncodedKind, str] = {"cloud": "clouds", "image": "images"}
_PREFIXES: dict[EncodedKind, str] = {"cloud": "pointnet_", "image": "resnet_"}
"""Prefixes of the names of architectures with these encoders."""


class LayoutError(FleetToolsError, ValueError):
    """Observations or actions of another layout than the policy's."""


def kind_of(name: str, array: ArraySpec) -> Kind:
    """Returns the kind of an entry.

    Raises:
        LayoutError: No policy of this package reads such an entry.
    """
    match array.kind, array.dtype, array.shape:
        case "points", "float32", (_, 4):
            return "cloud"
        case "rgb", "uint8", (_, _, 3):
            return "image"
        case "points" | "rgb" | "depth" | "segmentation", _, _:
            pass
        case _, "float32", _:
            return "state"
    raise LayoutError(
        f"Policies cannot read {name!r} ({_brief(array)}); they read float32 numbers, point clouds "
        "(n, 4) and colour images (height, width, 3)."
    )


def entries_read(config: PolicyConfig, offered: Layout) -> dict[str, ArraySpec]:
    """Returns the entries that a policy reads, sorted by name.

    Args:
        config: Configuration of the policy.
        offered: The available entries.

    Raises:
        UnknownNameError: The policy reads an entry that is not available; or an entry of
            `first_frame` or `optional` is not among those to read.
        LayoutError: An entry lacks an encoder, or an encoder lacks an entry; or a robot may lack
            the only entry that shows the object.
    """
    for name in config.reads:
        if name not in offered:
            raise UnknownNameError("entry of the observation", name, offered)
    read = {name: offered[name] for name in sorted(config.reads or offered)}
    if config.task_hidden:
        if named := [name for name in config.reads if offered[name].kind == "one_hot"]:
            raise LayoutError(
                f"`task_hidden` hides {named[0]!r}, which `reads` names. Leave out one of the two."
            )
        read = {name: array for name, array in read.items() if array.kind != "one_hot"}
    try:
        kinds = {name: kind_of(name, array) for name, array in read.items()}
    except LayoutError as error:
        raise LayoutError(f"{error} {_what_works(config, offered)}") from None
    for encoded, key in _ENCODER_KEYS.items():
        names = [name for name, kind in kinds.items() if kind == encoded]
        if names and encoded not in config.encoders:
            raise LayoutError(
                f"The policy has no encoder for {', '.join(names)} (`{key}` of its config). "
                f"{_what_works(config, offered)}"
            )
        if encoded in config.encoders and not names:
            raise LayoutError(
                f"The policy's config has `{key}`, but there is no {encoded} to encode among "
                f"{', '.join(read) or 'no entries'}. {_what_works(config, offered)}"
            )
        if len({read[name].shape for name in names}) > 1:  # they are encoded in one pass
            raise LayoutError(
                f"One encoder reads entries of one shape; {', '.join(names)} have several: "
                f"{', '.join(_brief(read[name]) for name in names)}. Name one of them in `reads`, "
                "or use data of cameras with one size."
            )
    if not read:
        raise LayoutError("The observation has no entries. Give a policy at least one to read.")
    for name in (*config.first_frame, *config.optional):
        require_name("entry that the policy reads", name, read)
    if len(sights := entries_of_sight(read)) == 1 and sights[0] in config.optional:
        raise LayoutError(
            f"A robot that lacks {sights[0]!r} would act without seeing the object: the policy "
            "reads nothing else that shows it. Leave it out of `optional`, or read more."
        )
    if config.conditioned_on_task:
        entries_with_masks(read)  # raises if there are none
    return read


def entries_of_sight(read: Layout) -> list[str]:
    """Returns the entries that show the object; a robot has at least one of them.

    These are keypoints, clouds and images. If a policy reads none, any entry may show it.
    """
    found = [name for name, array in read.items() if array.kind in _SHOWING and name != NAMES[0]]
    return found or list(read)


def entries_with_masks(read: Layout) -> list[str]:
    """Returns the names of padded keypoints, which identify the task by their masks.

    Tasks with as many keypoints have the same masks.

    Raises:
        LayoutError: There are none.
    """
    names = [name for name, array in read.items() if array.kind == "masked_keypoints"]
    if not names:
        raise LayoutError(
            f"None of {', '.join(read)} identifies the task, so the policy cannot be conditioned "
            "on it. Read tool_keypoints or object_keypoints of `obs_mode=multitask_state`, or "
            'leave the body\'s `task_conditioning` at "input".'
        )
    return names


def numbers_read(
    config: PolicyConfig, read: Layout, scaling: "Scaling", names: list[str]
) -> np.ndarray:
    """Returns a mask of the numbers that a policy reads: all, unless its task is hidden.

    A hidden task also hides padded keypoints that some task lacks, with their masks: rows with a
    mask below 1 in the scaling's data. Without such data, all are hidden.

    Args:
        config: Configuration of the policy.
        read: Layout of the entries.
        scaling: Scaling of the entries.
        names: Names of entries without an encoder.

    Returns:
        (n,) bool, entries one after another in row-major order.
    """
    parts = [np.zeros(0, bool)]
    for name in names:
        shown = np.ones(read[name].shape, bool)
        if config.task_hidden and read[name].kind == "masked_keypoints":
            mean, std = (
                np.reshape(rows[name], shown.shape) for rows in (scaling.mean, scaling.std)
            )
            shown[:] = ((mean[:, -1] == 1) & (std[:, -1] == 0))[:, None]
            shown[:, -1] = False
        parts.append(shown.ravel())
    return np.concatenate(parts)


def require_offered(read: Layout, offered: Layout) -> None:
    """Checks that all entries of a policy are available in the expected layout.

    Raises:
        LayoutError: They are not; the message lists every difference.
    """
    errors = layout_differences(read, offered)
    if errors:
        raise LayoutError(
            f"The observation does not fit the policy: {'; '.join(errors)}. Use the environment "
            "kwargs of the policy's training, or train on this environment."
        )


def require_observed(read: Layout, observation: Mapping[str, np.ndarray]) -> None:
    """Checks that an observation holds a policy's entries, in their shapes and dtypes.

    Raises:
        LayoutError: It does not; the message lists every difference.
    """
    if not isinstance(observation, Mapping):
        raise LayoutError(
            "Expected an observation that is a mapping of arrays by name; given: "
            f"{type(observation).__name__}."
        )
    errors = misfits(read, observation)
    if errors:
        raise LayoutError(
            f"The observation does not match the inputs of the policy: {'; '.join(errors)}. Its "
            f"entries: {', '.join(observation) or 'none'}."
        )


def _what_works(config: PolicyConfig, offered: Layout) -> str:
    """Returns the options of programs with which a policy of this body can read the entries."""
    if config.own_classes:
        return "Your own classes read the entries in `clouds`, `images` and `reads`."
    kinds: dict[str, Kind] = {}
    for name, array in sorted(offered.items()):
        with contextlib.suppress(LayoutError):
            kinds[name] = kind_of(name, array)
    body, choices = config.body.type, []
    for encoded, prefix in _PREFIXES.items():
        if encoded in kinds.values():
            names = [name for name, kind in kinds.items() if kind in ("state", encoded)]
            choices.append((prefix + body, names))
    if names := [name for name, kind in kinds.items() if kind == "state"]:
        choices.append((body, names))
    if not choices:
        return "Collect data with entries that they read."
    texts = [
        f"`--architecture {name}"
        + ("`" if len(names) == len(offered) else f" --observations {' '.join(names)}`")
        for name, names in choices
    ]
    return f"With these data works {', or '.join(texts)} (in a config: `reads`)."


def _brief(array: ArraySpec) -> str:
    return f"{array.dtype} {array.shape}"


class Scaling(Value):
    """Offset and divisor of each entry without an encoder, stored with the policy.

    Scaling belongs to a policy and not to its weights, since averaged weights need inputs of one
    scale: policies with several scalings are not merged.

    Attributes:
        mean: Subtracted numbers in row-major order, by the entry's name.
        std: Divisors likewise; 0 stands for no division.
    """

    mean: dict[str, tuple[Number, ...]]
    std: dict[str, tuple[NonNegative, ...]]

    @pydantic.model_validator(mode="after")
    def _same_sizes(self) -> Self:
        sizes = [{name: len(row) for name, row in rows.items()} for rows in (self.mean, self.std)]
        if sizes[0] != sizes[1]:
            raise ValueError(f"mean has the sizes {sizes[0]}, but std has {sizes[1]}")
        return self

    @classmethod
    def of(cls, statistics: Mapping[str, "Statistics"]) -> Self:
        """Returns the scaling by the statistics of data.

        A constant number is only centred, as in `Statistics.normalize`, because its deviation may
        be a rounding error. Point clouds are left out; `PointNetConfig` has a unit.

        Args:
            statistics: Statistics by the entry's name, such as
                `dataset.normalization.normalization_of(samples).observation`.
        """
        read = {name: entry for name, entry in statistics.items() if not entry.cloud}
        return cls(
            mean={name: entry.mean for name, entry in read.items()},
            std={
                name: tuple(np.where(np.equal(entry.min, entry.max), 0.0, entry.std).tolist())
                for name, entry in read.items()
            },
        )

    @classmethod
    def identity(cls, read: Layout) -> Self:
        """Returns the scaling that changes no number of the given entries."""
        sizes = {
            name: int(np.prod(array.shape))
            for name, array in read.items()
            if kind_of(name, array) == "state"
        }
        return cls(
            mean={name: (0.0,) * size for name, size in sizes.items()},
            std={name: (1.0,) * size for name, size in sizes.items()},
        )

    def rounded_digest(self) -> str:
        """Returns a hash of the numbers as networks use them, in float32."""
        digest = hashlib.blake2b(digest_size=8)
        for name in sorted(self.mean):
            digest.update(name.encode())
            for array in self.arrays([name]):
                digest.update(array.tobytes())
        return digest.hexdigest()

    def arrays(self, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the offsets and divisors of several entries, one after another.

        Args:
            names: Names of the entries.

        Returns:
            Offsets (n,) and divisors (n,), float32.
        """
        mean, std = (
            np.array([number for name in names for number in rows[name]], np.float32)
            for rows in (self.mean, self.std)
        )
        return mean, np.where(std == 0, np.float32(1), std)

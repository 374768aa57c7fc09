"""The table of observation modes, the source of checks, help texts and documentation.

A mode of your own, and a renderer, are named as module:name. Data name them, too, and hold no code:
reading such data imports nothing, and only an environment that is made of it does.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pydantic

from fleet_tools.config.cameras import IDEAL, SENSORS, SensorName
from fleet_tools.config.tasks import ObservedKeypoints, TaskConfig
from fleet_tools.envs import observations
from fleet_tools.envs.observations import Observable
from fleet_tools.errors import ConfigError, FleetToolsError, require_name, shown
from fleet_tools.perception.camera_view import CHANNELS
from fleet_tools.perception.measurement import NOTHING, RENDERERS, ObservationConfig, Seen
from fleet_tools.registration import ARENAS
from fleet_tools.robot.arm import DEFAULT_ROBOT
from fleet_tools.utils.imports import is_own, load_user_object


@dataclass(frozen=True)
class ObservationMode:
    """The entries of an observation besides the robot's own sensors.

    Attributes:
        summary: What it has, as a noun phrase.
        entries: Returns its entries; raises a ConfigError if a task cannot have them.
        seen: What cameras are asked for.
        kwargs: The other keyword arguments of an environment that affect the observation.
        keypoints: Whether it has exact keypoints, whatever else it has.
    """

    summary: str
    entries: Callable[[ObservedKeypoints, ObservationConfig], dict[str, Observable]]
    seen: Seen = NOTHING
    kwargs: tuple[str, ...] = ()
    keypoints: bool = False


_CLOUD_KWARGS = ("camera_size", "cloud_size", "cloud_sampling", "cloud_source", "sensors")

OBS_MODES: dict[str, ObservationMode] = {
    "state": ObservationMode(
        "keypoints of tool and object", observations.own_keypoints, keypoints=True
    ),
    "multitask_state": ObservationMode(
        "keypoints of tool and object, in a layout common to all tasks",
        observations.padded_keypoints,
        kwargs=("keypoint_rows",),
        keypoints=True,
    ),
    "point_cloud": ObservationMode(
        "the fused point cloud of tool and object",
        observations.point_cloud,
        "points",
        _CLOUD_KWARGS,
    ),
    "cloud_and_keypoints": ObservationMode(  # to learn to read keypoints from clouds
        "the fused point cloud, and the keypoints of `multitask_state`",
        lambda *asked: observations.point_cloud(*asked) | observations.padded_keypoints(*asked),
        "points",
        (*_CLOUD_KWARGS, "keypoint_rows"),
        keypoints=True,
    ),
    "rgbd": ObservationMode(
        "images of all cameras",
        observations.images,
        "images",
        ("camera_size", "channels", "image_source", "sensors"),
    ),
}
"""The modes by name."""


_OWN_CODE = ("obs_mode", "cloud_source", "image_source")
_REMEDY = "Or module:name of one of your own."


def own_code(env_kwargs: Mapping[str, Any]) -> list[str]:
    """Returns the code of a user's own that arguments of an environment name, as module:name."""
    return [env_kwargs[name] for name in _OWN_CODE if is_own(env_kwargs.get(name))]


def require_mode(name: object) -> None:
    """Checks that there is an observation mode of a name; one of a user's own is not looked for.

    Raises:
        UnknownNameError: There is none.
    """
    if not is_own(name):
        require_name("obs_mode", name, OBS_MODES, _REMEDY)


def find_mode(name: str) -> ObservationMode:
    """Returns an observation mode, given its name or module:name.

    Raises:
        UnknownNameError: There is no such mode.
        ConfigError: Its module cannot be imported.
    """
    require_mode(name)
    if is_own(name):
        return load_user_object(name, "observation mode", ConfigError, ObservationMode)
    return OBS_MODES[name]


CLOUD_SAMPLINGS = ("farthest", "even")
"""Sampling methods of clouds, names in `fleet_tools.perception.point_cloud.SAMPLINGS`."""
MAX_CAMERA_SIZE = 4096
"""Largest width and height of images, in pixels."""
MAX_CLOUD_SIZE = 100_000
"""Largest number of points of the tool, and of the object, in a point cloud."""
MAX_KEYPOINT_ROWS = 1000
"""Largest number of rows for the keypoints of tool and object."""


def observation_arguments() -> tuple[str, ...]:
    """Returns the keyword arguments of an environment that affect observations of some mode."""
    return ("obs_mode", *sorted({name for mode in OBS_MODES.values() for name in mode.kwargs}))


def policy_kwargs() -> tuple[str, ...]:
    """Returns the keyword arguments of an environment that a policy may choose.

    Sensors are chosen by whoever runs it.
    """
    return tuple(name for name in observation_arguments() if name != "sensors")


def observation_kwargs(
    env_kwargs: Mapping[str, Any], read: Collection[str] | None = None
) -> dict[str, Any]:
    """Returns the keyword arguments of an environment that affect its observations, canonical.

    Args:
        env_kwargs: Keyword arguments of an environment.
        read: Entries that a policy reads; all if None. A policy that reads no keypoints of
            `cloud_and_keypoints` is then not given them, and likewise clouds.

    Raises:
        UnknownNameError: There is no such observation mode.
    """
    mode, given = env_kwargs.get("obs_mode", "state"), canonical_kwargs(env_kwargs)
    if mode == "cloud_and_keypoints" and read is not None:
        clouds = "point_cloud" in read
        keypoints = any(name.endswith("_keypoints") for name in read)
        if not (clouds and keypoints):
            mode = "point_cloud" if clouds else "multitask_state"
    affecting = dict(_affecting())
    if is_own(mode):  # which of them do is known to its code alone
        affecting[mode] = observation_arguments()[1:]
    require_name("obs_mode", mode, affecting, _REMEDY)
    return {"obs_mode": mode, **{name: given[name] for name in affecting[mode] if name in given}}


def _affecting() -> Iterator[tuple[str, Sequence[str]]]:
    """Yields the modes of all arenas, and the arguments of an environment that affect each."""
    yield from ((name, mode.kwargs) for name, mode in OBS_MODES.items())
    for arena in ARENAS.values():
        yield from arena.observations.items()


def canonical_kwargs(env_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns keyword arguments of an environment as they are stored and compared.

    They name the source of clouds, and neither sensors if these are ideal nor the default robot.
    """
    kwargs = {name: value for name, value in env_kwargs.items() if (name, value) not in _DEFAULTS}
    mode = kwargs.get("obs_mode")
    if isinstance(mode, str) and mode in OBS_MODES and "cloud_source" in OBS_MODES[mode].kwargs:
        kwargs.setdefault("cloud_source", "rays")
    return kwargs


_DEFAULTS = (("sensors", IDEAL), ("robot", DEFAULT_ROBOT))

EnvKwargs = Annotated[dict[str, pydantic.JsonValue], pydantic.AfterValidator(canonical_kwargs)]
"""Stored keyword arguments of an environment."""


def observables(
    obs_mode: str, keypoints: ObservedKeypoints, config: ObservationConfig, num_joints: int
) -> dict[str, Observable]:
    """Returns the entries of an environment's observations, by name.

    Args:
        obs_mode: One of `OBS_MODES`, or module:name.
        keypoints: The keypoints that the task observes.
        config: What is observed.
        num_joints: Number of the robot's joints.

    Raises:
        UnknownNameError: There is no such mode.
        ConfigError: A task has too many keypoints for the layout common to all tasks.
    """
    mode, own = find_mode(obs_mode), observations.proprioception(num_joints)
    try:
        entries = mode.entries(keypoints, config)
    except FleetToolsError:
        raise
    except Exception as error:  # a user's function may fail in any way
        raise ConfigError(f"obs_mode={obs_mode!r}: {type(error).__name__}: {error}") from error
    if not isinstance(entries, dict) or not all(
        isinstance(each, Observable) for each in entries.values()
    ):
        raise ConfigError(
            f"obs_mode={obs_mode!r} must return a dict of `Observable` by name; it returned "
            f"{shown(entries)}."
        )
    return own | entries


def observation_config(
    task: TaskConfig,
    obs_mode: str,
    camera_size: Sequence[int] = (320, 240),
    channels: Sequence[str] = CHANNELS,
    cloud_size: Sequence[int] = (512, 512),
    cloud_sampling: str = "farthest",
    cloud_source: str = "rays",
    image_source: str = "vtk",
    sensors: SensorName = IDEAL,
    keypoint_rows: int = 8,
) -> ObservationConfig:
    """Checks the keyword arguments of an environment, see `ToolUseEnv`.

    Raises:
        UnknownNameError, ConfigError: An argument is not valid, or the task has no cameras.
    """
    mode = find_mode(obs_mode)
    for name, source in (("cloud_source", cloud_source), ("image_source", image_source)):
        if not is_own(source):
            require_name(name, source, RENDERERS, _REMEDY)
    require_name("cloud_sampling", cloud_sampling, CLOUD_SAMPLINGS)
    require_sensors(sensors, obs_mode, mode)
    _require_channels(channels)
    if not _is_count(keypoint_rows, MAX_KEYPOINT_ROWS):
        raise ConfigError(
            f"Expected an integer from 1 to {MAX_KEYPOINT_ROWS:,} as keypoint_rows; given: "
            f"{shown(keypoint_rows)}."
        )
    seen, has_place = mode.seen, task.randomization.place is not None
    points = _pair(
        "cloud_size", cloud_size, MAX_CLOUD_SIZE, "the number of points of (tool, object)"
    )
    if has_place and seen == "points" and points[1] < 2:
        raise ConfigError(
            f"cloud_size={points}: the task {task.name!r} uses one of the object's points for its "
            "marked place. Give the object at least 2 points."
        )
    if seen != NOTHING and not task.cameras:
        raise ConfigError(
            f"obs_mode={obs_mode!r} needs cameras, and the task {task.name!r} has none. Add "
            "`cameras` and `randomization.cameras` to its file, as in task_configs/hammer.yaml."
        )
    return ObservationConfig(
        seen=seen,
        renderer=image_source if seen == "images" else cloud_source,
        camera_size=image_size("camera_size", camera_size),
        channels=tuple(name for name in CHANNELS if name in channels),
        cloud_size=points,
        sampling=cloud_sampling,
        sensor=task.sensors.named(sensors),
        cameras=task.cameras,
        keypoint_rows=keypoint_rows,
        has_place=has_place,
    )


def require_sensors(sensors: str, obs_mode: str, mode: ObservationMode | None = None) -> None:
    """Checks the sensors of an observation mode.

    Args:
        sensors: Their name.
        obs_mode: Name of the mode.
        mode: The mode, where one of a user's own is at hand.

    Raises:
        UnknownNameError: There are no such sensors.
        ConfigError: They make errors that the mode does not show.
    """
    require_name("sensors", sensors, SENSORS)
    if sensors != IDEAL and not (shows_cameras(obs_mode) if mode is None else mode.seen != NOTHING):
        suited = " or ".join(f'"{name}"' for name in OBS_MODES if shows_cameras(name))
        raise ConfigError(
            f"sensors={sensors!r} adds errors to depth cameras, but obs_mode={obs_mode!r} uses no "
            f'cameras. Use obs_mode={suited}, or sensors="ideal".'
        )


def shows_cameras(obs_mode: str) -> bool:
    """Whether observations of a mode use cameras, and therefore show errors of sensors."""
    return is_own(obs_mode) or (obs_mode in OBS_MODES and OBS_MODES[obs_mode].seen != NOTHING)


def _require_channels(channels: object) -> None:
    named = [channels] if isinstance(channels, str) else channels
    if isinstance(named, list | tuple):
        for channel in named:
            require_name("channel", channel, CHANNELS)
    if not isinstance(channels, list | tuple) or not 0 < len(channels) == len(set(channels)):
        raise ConfigError(
            f"Expected channels among {', '.join(CHANNELS)}; given: {shown(channels)}."
        )


def image_size(name: str, given: Sequence[int]) -> tuple[int, int]:
    """Returns the width and height of images, which the argument `name` gives.

    Raises:
        ConfigError: They are not valid.
    """
    return _pair(name, given, MAX_CAMERA_SIZE, "(width, height) in pixels")


def _pair(name: str, given: Sequence[int], largest: int, meaning: str) -> tuple[int, int]:
    match given:
        case [first, second] if _is_count(first, largest) and _is_count(second, largest):
            return first, second
    raise ConfigError(
        f"Expected {name} to be {meaning}, two integers from 1 to {largest:,}; given: "
        f"{shown(given)}."
    )


def _is_count(number: object, largest: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 < number <= largest

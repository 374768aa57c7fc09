"""What an environment is asked to observe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import pydantic

from fleet_tools.config.cameras import IDEAL, SENSORS, Camera, Sensor, SensorName
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.errors import ConfigError, require_name, shown

# Programs read keyword arguments before they compile anything.
if TYPE_CHECKING:
    from fleet_tools.perception.point_cloud import Sampling

OBS_MODES = {
    "state": (),
    "multitask_state": (),
    "point_cloud": ("camera_size", "cloud_size", "cloud_sampling", "cloud_source", "sensors"),
    "rgbd": ("camera_size", "channels", "sensors"),
}
"""By mode, the other keyword arguments of an environment that affect its observations."""
ARENA_OBS_MODES = {"features": ("encoder",)}
"""Modes of environments of other arenas, likewise."""
CAMERA_MODES = ("point_cloud", "rgbd")
"""The modes that show what cameras see."""
POLICY_KWARGS = (
    "obs_mode",
    *sorted({name for names in OBS_MODES.values() for name in names} - {"sensors"}),
)
"""Those of these that a policy may choose; sensors are chosen by whoever runs it."""
CLOUD_SAMPLINGS = ("farthest", "even")
"""How points are sampled, names in `point_cloud.SAMPLINGS`."""
RENDERED = "vtk"
CLOUD_SOURCES = ("rays", RENDERED)
"""How points are seen: by casting rays, or by rendering with VTK, which needs OpenGL."""
Channel = Literal["rgb", "depth", "segmentation"]
CHANNELS: tuple[Channel, ...] = get_args(Channel)
MAX_CAMERA_SIZE = 4096
"""Largest width and height of images, in pixels."""
MAX_CLOUD_SIZE = 100_000
"""Largest number of points of the tool, and of the object, in the mode "point_cloud"."""


def observation_kwargs(env_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keyword arguments of an environment that affect its observations.

    They have the one form of `in_one_form`.

    Raises:
        UnknownNameError: There is no such observation mode.
    """
    modes = {**OBS_MODES, **ARENA_OBS_MODES}
    mode = env_kwargs.get("obs_mode", "state")
    require_name("obs_mode", mode, modes)
    given = in_one_form(env_kwargs)
    return {"obs_mode": mode, **{name: given[name] for name in modes[mode] if name in given}}


def in_one_form(env_kwargs: Mapping[str, Any], source: str = CLOUD_SOURCES[0]) -> dict[str, Any]:
    """Returns keyword arguments of an environment as they are stored and compared.

    They name the source of clouds, and no sensors if these are ideal.

    Args:
        env_kwargs: Keyword arguments.
        source: The source if they have clouds and name none. Stored ones without a source are of
            version 0.1, whose clouds were rendered: `RENDERED`.
    """
    kwargs = {key: value for key, value in env_kwargs.items() if (key, value) != _IDEAL_SENSORS}
    if kwargs.get("obs_mode") != "point_cloud":
        return kwargs
    return {**kwargs, "cloud_source": kwargs.get("cloud_source", source)}


_IDEAL_SENSORS = ("sensors", IDEAL)

StoredEnvKwargs = Annotated[
    dict[str, pydantic.JsonValue],
    pydantic.AfterValidator(partial(in_one_form, source=RENDERED)),
]
"""Stored keyword arguments of an environment; those of version 0.1 name no source of clouds."""


def channel_of(name: str) -> str | None:
    """Returns the image channel of an observation's entry; None if it is not an image."""
    return next((channel for channel in CHANNELS if name.endswith(f"_{channel}")), None)


def is_image(name: str) -> bool:
    """Whether an observation's entry is an image."""
    return channel_of(name) is not None


@dataclass(frozen=True)
class ObservationConfig:
    """What to observe.

    Attributes:
        obs_mode: One of `OBS_MODES`.
        camera_size: (width, height) of every camera's images, in pixels.
        channels: The `CHANNELS` that are rendered in the mode "rgbd".
        cloud_size: Number of points of the tool, and of the object, in the mode "point_cloud".
        cloud_sampling: How points are sampled, a name in `point_cloud.SAMPLINGS`.
        cloud_source: How points are seen, one of `CLOUD_SOURCES`.
        sensor: Errors of the cameras; None if they are ideal.
        cameras: The task's cameras.
    """

    obs_mode: str
    camera_size: tuple[int, int]
    channels: tuple[Channel, ...]
    cloud_size: tuple[int, int]
    cloud_sampling: str
    cloud_source: str
    sensor: Sensor | None
    cameras: dict[str, Camera]

    @property
    def has_cameras(self) -> bool:
        """Whether it has cameras."""
        return self.obs_mode in CAMERA_MODES

    @property
    def delayed(self) -> bool:
        """Whether cameras show the step before."""
        return self.sensor is not None and self.sensor.delay_steps == 1

    @property
    def sampling(self) -> "Sampling":
        """How points are sampled."""
        from fleet_tools.perception.point_cloud import RENDERED_SAMPLINGS, SAMPLINGS

        return (SAMPLINGS if self.casts_rays else RENDERED_SAMPLINGS)[self.cloud_sampling]

    @property
    def casts_rays(self) -> bool:
        """Whether its points are seen by casting rays."""
        return self.obs_mode == "point_cloud" and self.cloud_source == "rays"

    @property
    def needs_renderer(self) -> bool:
        """Whether it needs OpenGL."""
        return self.has_cameras and not self.casts_rays

    @property
    def has_colors(self) -> bool:
        """Whether it shows colours."""
        return self.obs_mode == "rgbd" and "rgb" in self.channels

    @classmethod
    def of(
        cls,
        task: TaskConfig,
        obs_mode: str,
        camera_size: Sequence[int],
        channels: Sequence[str],
        cloud_size: Sequence[int],
        cloud_sampling: str,
        cloud_source: str,
        sensors: SensorName,
    ) -> "ObservationConfig":
        """Checks the keyword arguments of an environment.

        Raises:
            UnknownNameError, ConfigError: An argument is not valid, or the task has no cameras.
        """
        _require_mode(obs_mode)
        require_name("cloud_sampling", cloud_sampling, CLOUD_SAMPLINGS)
        require_name("cloud_source", cloud_source, CLOUD_SOURCES)
        require_sensors(sensors, obs_mode)
        _require_channels(channels)
        config = cls(
            obs_mode=obs_mode,
            camera_size=_pair(
                "camera_size", camera_size, MAX_CAMERA_SIZE, "(width, height) in pixels"
            ),
            channels=tuple(name for name in CHANNELS if name in channels),
            cloud_size=_pair(
                "cloud_size", cloud_size, MAX_CLOUD_SIZE, "the number of points of (tool, object)"
            ),
            cloud_sampling=cloud_sampling,
            cloud_source=cloud_source,
            sensor=task.sensors.named(sensors),
            cameras=task.cameras,
        )
        if config.has_cameras and not task.cameras:
            raise ConfigError(
                f"obs_mode={obs_mode!r} needs cameras, and the task {task.name!r} has none. Add "
                "`cameras` and `randomization.cameras` to its file, as in task_configs/hammer.yaml."
            )
        return config


def require_sensors(sensors: str, obs_mode: str) -> None:
    """Checks the sensors of an observation mode.

    Raises:
        UnknownNameError: There are no such sensors.
        ConfigError: They make errors that the mode does not show.
    """
    require_name("sensors", sensors, SENSORS)
    if sensors != IDEAL and obs_mode not in CAMERA_MODES:
        raise ConfigError(
            f"sensors={sensors!r} are depth cameras with errors, and obs_mode={obs_mode!r} has no "
            'cameras. Use obs_mode="point_cloud" or "rgbd", or sensors="ideal".'
        )


def _require_mode(obs_mode: str) -> None:
    require_name("obs_mode", obs_mode, OBS_MODES)


def _require_channels(channels: object) -> None:
    named = [channels] if isinstance(channels, str) else channels
    if isinstance(named, list | tuple):
        for channel in named:
            require_name("channel", channel, CHANNELS)
    if not isinstance(channels, list | tuple) or not 0 < len(channels) == len(set(channels)):
        raise ConfigError(
            f"channels lists some of {', '.join(CHANNELS)}; given: {shown(channels)}."
        )


def _pair(name: str, given: Sequence[int], largest: int, meaning: str) -> tuple[int, int]:
    match given:
        case [first, second] if _is_count(first, largest) and _is_count(second, largest):
            return first, second
    raise ConfigError(
        f"{name} is {meaning}, two positive integers up to {largest:,}; given: {shown(given)}."
    )


def _is_count(number: object, largest: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 < number <= largest

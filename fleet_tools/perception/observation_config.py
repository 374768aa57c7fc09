"""Vision: which observations an environment gives, and how its cameras look."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet_tools.config.cameras import Camera
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.perception.point_cloud import require_sampling

OBS_MODES = {
    "state": (),
    "multitask_state": (),
    "point_cloud": ("camera_size", "cloud_size", "cloud_sampling"),
    "rgbd": ("camera_size", "channels"),
}
"""Which keywords of an environment, beside the mode itself, decide what it observes."""
OBSERVING_KEYWORDS = ("obs_mode", *sorted({name for names in OBS_MODES.values() for name in names}))
"""All of these: what a policy may choose of its environment."""
CHANNELS = ("rgb", "depth", "segmentation")


def observing_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of an environment's keywords that decide what it observes, with its mode.

    Raises:
        UnknownNameError: There is no such mode.
    """
    mode = keywords.get("obs_mode", "state")
    _require_mode(mode)
    matter = {name: keywords[name] for name in OBS_MODES[mode] if name in keywords}
    return {"obs_mode": mode, **matter}


def channel_of(name: str) -> str | None:
    """Returns which of the `CHANNELS` an entry of an observation shows, if it is a picture."""
    return next((channel for channel in CHANNELS if name.endswith(f"_{channel}")), None)


def is_picture(name: str) -> bool:
    """Whether an entry of an observation is what a camera shows in one of its `CHANNELS`."""
    return channel_of(name) is not None


@dataclass(frozen=True)
class Vision:
    """What to look for.

    Attributes:
        obs_mode: One of `OBS_MODES`.
        camera_size: (width, height) of every camera's pictures, in pixels.
        channels: Which of `CHANNELS` are rendered for `rgbd`.
        cloud_size: How many points of the tool, and of the object, `point_cloud` gives.
        cloud_sampling: How they are chosen, a name in `point_cloud.SAMPLINGS`.
        cameras: Of the task.
    """

    obs_mode: str
    camera_size: tuple[int, int]
    channels: tuple[str, ...]
    cloud_size: tuple[int, int]
    cloud_sampling: str
    cameras: dict[str, Camera]

    @property
    def has_images(self) -> bool:
        """Whether it needs a renderer."""
        return self.obs_mode in ("point_cloud", "rgbd")

    @property
    def has_colours(self) -> bool:
        """Whether it shows colours."""
        return self.obs_mode == "rgbd" and "rgb" in self.channels


def choose_vision(
    task: TaskConfig,
    obs_mode: str,
    camera_size: Sequence[int],
    channels: Sequence[str],
    cloud_size: Sequence[int],
    cloud_sampling: str,
) -> Vision:
    """Checks what was asked for.

    Raises:
        UnknownNameError, ConfigError: There is no such thing, or the task has no cameras.
    """
    _require_mode(obs_mode)
    require_sampling(cloud_sampling)
    for channel in (channels,) if isinstance(channels, str) else channels:
        if channel not in CHANNELS:
            raise UnknownNameError("channel", channel, CHANNELS)
    if isinstance(channels, str) or not channels or len(set(channels)) < len(channels):
        raise ConfigError(f"channels lists some of {', '.join(CHANNELS)}; given: {channels!r}.")
    vision = Vision(
        obs_mode=obs_mode,
        camera_size=_pair("camera_size", camera_size, "(width, height) in pixels"),
        channels=tuple(name for name in CHANNELS if name in channels),
        cloud_size=_pair("cloud_size", cloud_size, "how many points of (tool, object)"),
        cloud_sampling=cloud_sampling,
        cameras=task.cameras,
    )
    if vision.has_images and not task.cameras:
        raise ConfigError(
            f"obs_mode={obs_mode!r} needs cameras, and the task {task.name!r} has none. Add "
            "`cameras` and `randomization.cameras` to its file, as task_configs/hammer.yaml has."
        )
    return vision


def _require_mode(obs_mode: str) -> None:
    if obs_mode not in OBS_MODES:
        raise UnknownNameError("obs_mode", obs_mode, OBS_MODES)


def _pair(name: str, given: Sequence[int], meaning: str) -> tuple[int, int]:
    numbers = tuple(given) if isinstance(given, Sequence) else ()
    counts = all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in numbers)
    if len(numbers) != 2 or not counts:
        raise ConfigError(f"{name} is {meaning}, two positive integers; given: {given!r}.")
    return numbers

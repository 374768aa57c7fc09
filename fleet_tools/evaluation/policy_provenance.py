"""The evaluated policy: its source, digest and observations."""

from pathlib import Path
from typing import Literal, Self

import pydantic

from fleet_tools.config.cameras import IDEAL, SENSORS, SensorName
from fleet_tools.config.values import Seed, Value
from fleet_tools.envs.observation_modes import (
    OBS_MODES,
    EnvKwargs,
    canonical_kwargs,
    require_sensors,
    shows_cameras,
)
from fleet_tools.errors import PolicyError, UnknownNameError, require_name, shown
from fleet_tools.perception.measurement import Seen
from fleet_tools.policies.sources import PolicySource, Track, natural_track
from fleet_tools.robot.arm import DEFAULT_ROBOT, robot_names

Reading = Literal["keypoints", "clouds", "images"]
"""Inputs that a policy can read."""

_READINGS: dict[Seen, Reading] = {"nothing": "keypoints", "points": "clouds", "images": "images"}


class PolicyProvenance(Value):
    """The evaluated policy and its origin.

    Attributes:
        name: Name in tables.
        kind: Kind of its source.
        source: Built-in name, module:factory, file name of the checkpoint, or address of a server.
        content_digest: Hash of the checkpoint, which a server states of its own, or of the module's
            file; None for built-in policies.
        env_kwargs: Keyword arguments of its environment, such as {"obs_mode": "point_cloud"}; its
            sensors are ideal if they are not among them.
        training_seed: Seed of its training run, if it is one of several of the same name.
        track: What it knows.
    """

    name: str
    kind: Literal["built_in", "factory", "checkpoint", "remote"]
    source: str
    content_digest: str | None
    env_kwargs: EnvKwargs
    training_seed: Seed | None = None
    track: Track

    @pydantic.model_validator(mode="after")
    def _known_sensors(self) -> Self:
        if self.sensors not in SENSORS:
            raise ValueError(f"unknown sensors {shown(self.sensors)}")
        mode = self.env_kwargs.get("obs_mode", "state")
        if self.sensors != IDEAL and not shows_cameras(str(mode)):
            raise ValueError(
                f"the observations {shown(mode)} use no cameras, so they cannot have sensors "
                f"{self.sensors}"
            )
        return self

    @property
    def sensors(self) -> str:
        """Its depth cameras, one of `SENSORS`."""
        return str(self.env_kwargs.get("sensors", IDEAL))

    @pydantic.model_validator(mode="after")
    def _known_robot(self) -> Self:
        if self.robot not in robot_names():
            raise ValueError(str(UnknownNameError("robot", self.robot, robot_names())))
        return self

    @property
    def robot(self) -> str:
        """The robot on which it acts, one of the package."""
        return str(self.env_kwargs.get("robot", DEFAULT_ROBOT))

    @property
    def reads(self) -> Reading:
        """Entries of its observations besides the robot's own sensors; keypoints, if there are any.

        Raises:
            UnknownNameError: Its observation mode is none of the package.
        """
        mode = self.env_kwargs.get("obs_mode", "state")
        require_name("obs_mode", mode, OBS_MODES)
        observed = OBS_MODES[str(mode)]
        return "keypoints" if observed.keypoints else _READINGS[observed.seen]

    @property
    def label(self) -> str:
        """Its name, with robot and sensors unless they are the default one and ideal."""
        usual = (("robot", DEFAULT_ROBOT), ("sensors", IDEAL))
        others = [value for name, default in usual if (value := getattr(self, name)) != default]
        return f"{self.name} ({', '.join(others)})" if others else self.name

    @classmethod
    def of(
        cls,
        policy: PolicySource,
        name: str | None = None,
        obs_mode: str | None = None,
        training_seed: int | None = None,
        track: Track = "observations",
        sensors: SensorName = IDEAL,
        robot: str = DEFAULT_ROBOT,
    ) -> "PolicyProvenance":
        """Returns the provenance of a policy.

        Args:
            policy: The policy's source.
            name: Name in tables; if None, as the source, and of a checkpoint its file name
                without suffix. `best` and `last` say nothing, so that a training run's checkpoints
                are called like its folder: runs/hammer/best.safetensors is `hammer`, its last one
                `hammer_last`.
            obs_mode: Observation mode; the policy's own choice if None.
            training_seed: See the class.
            track: What a policy of others is given; the package's know what they know.
            sensors: Depth cameras, which the policy has no say in.
            robot: Robot of the package, likewise.

        Raises:
            UnknownNameError, ConfigError: There are no such sensors or robot, or its observation
                mode does not show what the sensors see.
        """
        if policy.kind == "dagger":
            raise PolicyError(
                f"{policy} shares the control with the expert, so its success rate would not be "
                "its own. Evaluate the checkpoint by itself."
            )
        natural = natural_track(policy.kind, policy.source)
        chosen = {"obs_mode": obs_mode} if obs_mode else {}
        require_name("robot", robot, robot_names())
        env_kwargs = {**policy.env_kwargs, **chosen, "sensors": sensors, "robot": robot}
        require_sensors(sensors, env_kwargs.get("obs_mode", "state"))
        return cls(
            name=name or default_name(policy),
            kind=policy.kind,
            source=policy.name,
            content_digest=policy.content_digest,
            env_kwargs=canonical_kwargs(env_kwargs),
            training_seed=training_seed,
            track=natural if policy.kind == "built_in" else track,
        )


def default_name(policy: PolicySource) -> str:
    """Returns the name of a policy in tables, see `PolicyProvenance.of`."""
    if policy.kind != "checkpoint":
        return policy.name
    path = Path(policy.source)
    if path.stem not in ("best", "last"):
        return path.stem
    # Folders of training runs may be numbered, as in runs/bc_mlp/0.
    folder = next((each.name for each in path.parents if not each.name.isdecimal()), "")
    if not folder:
        return path.stem
    return folder if path.stem == "best" else f"{folder}_{path.stem}"

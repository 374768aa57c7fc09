"""The evaluated policy, its origin, and what it sees."""

from pathlib import Path
from typing import Any, Literal, Self

import pydantic

from fleet_tools.config.cameras import IDEAL, SENSORS, SensorName
from fleet_tools.config.values import Seed, Value
from fleet_tools.errors import PolicyError, shown
from fleet_tools.perception.observation_config import (
    CAMERA_MODES,
    StoredEnvKwargs,
    in_one_form,
    require_sensors,
)
from fleet_tools.policies.sources import PolicySource, Track, natural_track


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
        track: What it knows. Results that do not say so are of before there were tracks, when a
            factory was given the environment; see `natural_track`.
    """

    name: str
    kind: Literal["built_in", "factory", "checkpoint", "remote"]
    source: str
    content_digest: str | None
    env_kwargs: StoredEnvKwargs
    training_seed: Seed | None = None
    track: Track

    @pydantic.model_validator(mode="before")
    @classmethod
    def _with_track(cls, data: Any) -> Any:
        if isinstance(data, dict) and "track" not in data:
            return {**data, "track": natural_track(data.get("kind"), data.get("source"))}
        return data

    @pydantic.model_validator(mode="after")
    def _known_sensors(self) -> Self:
        if self.sensors not in SENSORS:
            raise ValueError(f"there are no sensors {shown(self.sensors)}")
        mode = self.env_kwargs.get("obs_mode", "state")
        if self.sensors != IDEAL and mode not in CAMERA_MODES:
            raise ValueError(f"the observations {shown(mode)} show nothing of {self.sensors}")
        return self

    @property
    def sensors(self) -> str:
        """Its depth cameras, one of `SENSORS`."""
        return str(self.env_kwargs.get("sensors", IDEAL))

    @property
    def label(self) -> str:
        """Its name, with its sensors unless they are ideal."""
        return self.name if self.sensors == IDEAL else f"{self.name} ({self.sensors})"

    @classmethod
    def of(
        cls,
        policy: PolicySource,
        name: str | None = None,
        obs_mode: str | None = None,
        training_seed: int | None = None,
        track: Track = "observations",
        sensors: SensorName = IDEAL,
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
            track: What a policy of others is given; those of the package know what they know.
            sensors: Depth cameras, which the policy has no say in.

        Raises:
            UnknownNameError, ConfigError: There are no such sensors, or its observation mode does
                not show what they see.
        """
        if policy.kind == "dagger":
            raise PolicyError(
                f"{policy} acts in turns with the expert, so its success is not its own. Evaluate "
                "the checkpoint by itself."
            )
        natural = natural_track(policy.kind, policy.source)
        chosen = {"obs_mode": obs_mode} if obs_mode else {}
        env_kwargs = {**policy.env_kwargs, **chosen, "sensors": sensors}
        require_sensors(sensors, env_kwargs.get("obs_mode", "state"))
        return cls(
            name=name or default_name(policy),
            kind=policy.kind,
            source=policy.name,
            content_digest=policy.content_digest,
            env_kwargs=in_one_form(env_kwargs),
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

"""`dataset.json`: the environment, policy, seed and package versions of a dataset.

It describes an environment completely, so that the same one can be made again from it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
import pydantic

from fleet_tools.config.yaml_text import parse_yaml
from fleet_tools.dataset.carried_models import CarriesModels
from fleet_tools.envs.array_spec import ArraySpec, describe_action, describe_observation
from fleet_tools.envs.recorded_env import recorded
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import ConfigError, DatasetError, FleetToolsError, UnknownNameError
from fleet_tools.registration import TOOL_USE
from fleet_tools.robot.arm import DEFAULT_ROBOT
from fleet_tools.storage.locked_folder import Document
from fleet_tools.storage.provenance import TaskFile, installed_packages

if TYPE_CHECKING:
    from fleet_tools.envs.recorded_env import RecordedEnv

HEADER = "dataset.json"

SCHEMA_VERSION = 1


class Header(CarriesModels, Document):
    """The content of `dataset.json`.

    Attributes:
        schema_version: Version of the format; others are refused.
        task: The task file's text, name and digest.
        env_spec: `id` and `kwargs` for `gymnasium.make`.
        policy: Who acted, as given to `collect --policy`.
        seed: Seed of the dataset.
        keep_failures: Whether failed episodes are stored.
        action: Shape, dtype, unit, frame and names of an action, its `scale`, the meaning of 1, and
            `rate_hz`, control steps per second.
        observation: The same of each entry of an observation, by name.
        packages: Versions of packages.
    """

    error = DatasetError

    schema_version: Literal[1] = SCHEMA_VERSION
    task: TaskFile
    env_spec: EnvSpec
    policy: str
    seed: pydantic.NonNegativeInt
    keep_failures: bool
    action: ArraySpec
    observation: dict[str, ArraySpec]
    packages: dict[str, str]

    @pydantic.field_validator("action")
    @classmethod
    def _rate_is_known(cls, action: ArraySpec) -> ArraySpec:
        if action.rate_hz is None:
            raise ValueError("rate_hz is missing")
        return action

    @property
    def control_rate_hz(self) -> float:
        """Control steps per second."""
        assert self.action.rate_hz is not None
        return self.action.rate_hz

    def make_env(self, *, trusted: bool = False, **others: Any) -> "RecordedEnv":
        """Makes the environment of the dataset again, from the task file as it was then.

        Args:
            trusted: Whether functions that the task file names as predicates may be imported, and
                their code run. Otherwise only those in modules that the user trusts, see
                `fleet_tools.envs.predicate_functions`.
            others: Keyword arguments that are to differ, such as the render mode.

        Raises:
            DatasetError: The task file names functions that are not trusted, or the task is
                another one here and cannot be made as it was; or a model that the dataset carries
                is missing or damaged.
            FleetToolsError: What it was made of does not exist here.
        """
        if self.env_spec.arena is TOOL_USE:
            task = self.with_models_of(self.task)
            others |= self.robot_path({**self.env_spec.kwargs, **others})
            return self.env_spec.make_stored(
                task, "the dataset", DatasetError, trusted=trusted, **others
            )
        try:
            present = self.env_spec.arena.read_task(self.env_spec.task)
        except FleetToolsError:
            present = None
        if present is None or present.content_digest != self.task.content_digest:
            raise DatasetError(
                "The task of the dataset differs from the task of this name here. In the dataset:\n"
                f"{self.task.text}Here: {'missing' if present is None else present.text.strip()}\n"
                f"The dataset was made with {self.packages}."
            )
        return self.env_spec.make(**others)

    @property
    def robot(self) -> str:
        """Name of the robot; of the arena, where it has none of this package."""
        if self.env_spec.arena is not TOOL_USE:
            return self.env_spec.arena.name
        return str(self.env_spec.kwargs.get("robot", DEFAULT_ROBOT)).partition("@")[0]

    @property
    def setting(self) -> str:
        """Name of the task; with another robot than the default one, "TASK@ROBOT"."""
        if self.env_spec.arena is not TOOL_USE or self.robot == DEFAULT_ROBOT:
            return self.task.name
        return f"{self.task.name}@{self.robot}"

    @staticmethod
    def task_and_robot(setting: str) -> tuple[str, str]:
        """Returns the task and the robot of a `setting`; outside of Drake, the default robot."""
        task, _, robot = setting.partition("@")
        return task, robot or DEFAULT_ROBOT

    @property
    def images(self) -> tuple[str, ...]:
        """Names of the entries of an observation that are images."""
        return tuple(name for name, spec in self.observation.items() if spec.is_image)

    def local_spec(self) -> EnvSpec:
        """Returns the specification with paths of the models that the dataset carries."""
        kwargs = self.with_paths(self.env_spec.kwargs)
        return self.env_spec.model_copy(update={"kwargs": kwargs})

    def task_description(self) -> str:
        """Returns the task in a sentence, or its name if its file has none."""
        content = parse_yaml(self.task.text, f"The task file of the dataset ({self.task.name})")
        description = content.get("description") if isinstance(content, dict) else None
        return str(description or self.task.name)

    def require_tool_use(self) -> None:
        """Checks that its episodes are of a tool-use environment, which this package can draw.

        Raises:
            ConfigError: It is a dataset of another arena.
        """
        arena = self.env_spec.arena
        if arena is not TOOL_USE:
            raise ConfigError(
                "Images can only be made of tool-use environments; this dataset has "
                f"{self.task.name!r}, a task of {arena.name}."
            )

    def essence(self) -> dict[str, object]:
        """Returns the properties that must be equal within one dataset, by name."""
        kwargs = {key: value for key, value in self.env_spec.kwargs.items() if key != "task"}
        return {
            "the task": f"{self.task.name} ({self.task.content_digest})",
            "the environment": kwargs,
            "the policy": self.policy,
            "the seed": self.seed,
            "keep-failures": self.keep_failures,
            **{str(model): model.content_digest for model in self.models},
            **{f"the version of {name}": number for name, number in self.packages.items()},
        }


def describe(
    env: gymnasium.Env, spec: EnvSpec, *, policy: str, seed: int, keep_failures: bool
) -> Header:
    """Describes a dataset that is to be collected.

    Args:
        env: The environment, as `spec.make()` returns it.
        spec: Its specification.
        policy: Name of the policy.
        seed: Seed of the dataset.
        keep_failures: Whether failed episodes are stored.

    Raises:
        UnknownNameError, ConfigError: There is no such task, or it is not valid.
    """
    models = recorded(env).own_models()
    kwargs = {**spec.kwargs, **{m.kind: m.name for m in models if m.family is None}}
    header = Header(
        task=spec.arena.read_task(spec.task),
        env_spec=spec.model_copy(update={"kwargs": kwargs}),
        policy=policy,
        seed=seed,
        keep_failures=keep_failures,
        action=describe_action(env),
        observation=describe_observation(env),
        packages=installed_packages(spec.arena.packages),
    )
    return header.with_models(models)


def common_layout(
    headers: Mapping[str, Header], requested: Sequence[str] | None
) -> tuple[dict[str, ArraySpec], ArraySpec]:
    """Returns the layouts of observations and of actions that all of some datasets have.

    Args:
        headers: Headers of the datasets, by their folders; at least one.
        requested: Names of entries of the observation; None for all.

    Raises:
        UnknownNameError: A dataset has no such entry.
        DatasetError: Datasets do not fit together; the message says in what, and what fits.
    """
    (folder, first), *others = headers.items()
    for name in requested or ():
        for each, header in headers.items():
            if name not in header.observation:
                raise UnknownNameError(f"observation in {each}", name, header.observation)
    for other, header in others:
        expected, given = first.observation, header.observation
        names = list({**expected, **given}) if requested is None else requested
        found = {name: _differences(expected.get(name), given.get(name)) for name in names}
        found["action"] = _differences(first.action, header.action)
        if any(found.values()):
            fitting = [name for name, differences in found.items() if not differences]
            raise DatasetError(
                f"{other} does not fit {folder}: "
                f"{'; '.join(f'{name}: {what}' for name, what in found.items() if what)}. "
                f"Entries that fit: {', '.join(fitting) or 'none'}. Choose among them with "
                "`observations=[...]` (`policy: {reads: [...]}` of a fleet); the action must fit."
            )
    observation = first.observation
    chosen = observation if requested is None else {name: observation[name] for name in requested}
    return dict(chosen), first.action


def _differences(first: ArraySpec | None, second: ArraySpec | None) -> str:
    if first is None or second is None:
        return "" if first is second else f"only in the {'former' if second is None else 'latter'}"
    pairs = {name: (getattr(first, name), getattr(second, name)) for name in ArraySpec.model_fields}
    return ", ".join(f"{name} {a}, not {b}" for name, (a, b) in pairs.items() if a != b)

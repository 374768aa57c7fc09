"""Protocols: YAML files that fix the tasks, splits and scene seeds of an evaluation.

A file can have levels beside the nominal one (`fleet_tools.evaluation.levels`), each of which is a
protocol with a digest of its own.

Tasks are the package's, by their names, and a user's own, by the paths of their files. A protocol
that has been read names all of them, and holds the files of the user's own, so that results hold
them, too; its hash covers what they say, and not where they lie.

The task files define the time limit and success. Each policy chooses its observations. Success is
counted as the outcome and as success after any step. Episodes in which the simulator failed before
the policy acted are no trials.

A published version never changes. When task files or the physics do, there is a new version.
"""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self

import pydantic

from fleet_tools.config.cameras import IDEAL
from fleet_tools.config.tasks import GentleLimits, TaskConfig, load_task, task_names
from fleet_tools.config.values import Count, MisfitError, Value
from fleet_tools.config.yaml_text import MAX_CHARACTERS
from fleet_tools.envs.observation_modes import shows_cameras
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import ConfigError, ResultError, require_name, shown
from fleet_tools.evaluation.level_scenes import SceneRules
from fleet_tools.registration import CUSTOM_ID
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.splits import EVALUATION
from fleet_tools.storage.provenance import TaskFile, read_task_file

if TYPE_CHECKING:
    from fleet_tools.envs.tool_use_env import ToolUseEnv

NOMINAL = "nominal"
"""Name of the level in which nothing is harder than in training."""

OWN_TASK = "A task of your own is given by the path of its YAML file."


def _of_evaluation(seed: int) -> int:
    if seed not in EVALUATION:
        raise ValueError(
            f"evaluation seeds lie between {EVALUATION.start} (2^52) and {EVALUATION[-1]}; smaller "
            "ones are for training"
        )
    return seed


class Scenes(Value):
    """The scenes of a split, the same number for each task.

    Attributes:
        scenes: Number of scenes.
        first_seed: Scene k of each task has the seed `first_seed + k`.
    """

    scenes: Count
    first_seed: Annotated[int, pydantic.AfterValidator(_of_evaluation)]

    def seeds(self) -> range:
        """Returns the seeds of all scenes of a task, in order."""
        return range(self.first_seed, self.first_seed + self.scenes)


class Trial(Value):
    """One episode of a protocol.

    Attributes:
        task: Name of a task of the package.
        split: Split from which tool and object are drawn; see `fleet_tools.sim.splits`.
        index: Index of the scene in the split.
        seed: Seed of the scene.
    """

    task: str
    split: str
    index: pydantic.NonNegativeInt
    seed: int

    @property
    def key(self) -> tuple[str, str, int]:
        """Identifier within a protocol: task, split and index."""
        return self.task, self.split, self.index


class ProtocolFile(SceneRules):
    """Definition of an evaluation; policies evaluated by the same protocol can be compared.

    Attributes:
        name, version: Identifier.
        description: Purpose.
        tasks: Names of tasks of the package, and paths of task files, relative to this file.
        splits: Scenes of each split; see `fleet_tools.sim.splits`.
    """

    name: str
    version: Count
    description: str
    tasks: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    splits: Annotated[dict[str, Scenes], pydantic.Field(min_length=1)]

    @pydantic.model_validator(mode="after")
    def _no_scene_twice(self) -> Self:
        if len(set(self.tasks)) < len(self.tasks):
            raise MisfitError("tasks", f"a task is given twice: {list(self.tasks)}")
        end, before = EVALUATION.start, None
        for name, scenes in sorted(self.splits.items(), key=lambda item: item[1].first_seed):
            if scenes.first_seed < end:
                raise MisfitError("splits", f"the splits {before!r} and {name!r} share seeds")
            end, before = scenes.seeds().stop, name
            _of_evaluation(scenes.seeds()[-1])
        return self


class Protocol(ProtocolFile):
    """A protocol that has been read.

    Attributes:
        tasks: Names of its tasks.
        task_files: By name, the files of those that are not the package's.
    """

    task_files: dict[str, TaskFile] = {}

    @pydantic.model_validator(mode="after")
    def _task_files_fit(self) -> Self:
        if (size := sum(len(file.text) for file in self.task_files.values())) > MAX_CHARACTERS:
            raise MisfitError(
                "task_files",
                f"the files have {size:,} characters together; at most {MAX_CHARACTERS:,} are "
                "allowed",
            )
        for name in self.by_task:
            require_name("task of the protocol", name, self.tasks)
        for name in self.tasks if self.level and self.sensors is None else ():
            if not self.changes(name).has_any:
                raise MisfitError("level", f"{self.level!r} changes nothing in the task {name!r}")
        for name, file in self.task_files.items():
            place = f"task_files.{name}"
            if name not in self.tasks or name != file.name:
                raise MisfitError(place, f"{shown(file.name)} is not one of the protocol's tasks")
            task = file.content()
            if (task.name, task.digest()) != (name, file.content_digest):
                raise MisfitError(place, "its name or content_digest does not match its text")
        return self

    @property
    def title(self) -> str:
        """Name, version and level."""
        return f"{self.name} v{self.version}" + (f", {self.level}" if self.level else "")

    @property
    def level_name(self) -> str:
        """Name of the level, `NOMINAL` for a protocol without others."""
        return self.level or NOMINAL

    def scene(self, task: TaskConfig, trial: Trial) -> Scene:
        """Draws the scene of a trial.

        Args:
            task: The trial's task, perhaps with the robot's numbers.
            trial: One of its trials.
        """
        return self.draw(task, trial.seed, trial.split)

    def scene_rules(self) -> SceneRules:
        """Returns the rules that all its scenes share."""
        return SceneRules(**{name: getattr(self, name) for name in SceneRules.model_fields})

    def require_sensors(self, given: str, obs_mode: str) -> None:
        """Checks that depth cameras are the level's, and that observations can show them.

        Args:
            given: The cameras.
            obs_mode: The observation mode.

        Raises:
            ConfigError: The level has others, or the observations show none.
        """
        if self.sensors not in (None, given):
            raise ConfigError(
                f"{self.title!r} uses {self.sensors} cameras; given: sensors {given}. Leave "
                "`sensors` out, or choose another level."
            )
        if self.sensors not in (None, IDEAL) and not shows_cameras(obs_mode):
            raise ConfigError(
                f"The level {self.level_name!r} changes the measurements of cameras, but "
                f"obs_mode={obs_mode!r} uses no cameras. Leave this level out for this policy."
            )

    def max_steps(self, task: TaskConfig) -> int:
        """Returns the time limit of the episodes of a task, in steps."""
        return task.max_episode_steps * (1 if self.changes(task.name).second_object is None else 2)

    def trials(
        self, task: str | None = None, split: str | None = None, scenes: int | None = None
    ) -> list[Trial]:
        """Returns the protocol's trials, in its order.

        Args:
            task: The only task; all if None.
            split: The only split; all if None.
            scenes: Number of first scenes of each task and split; all if None.

        Raises:
            UnknownNameError: The protocol has no such task or split.
        """
        for what, given, known, remedy in (
            ("task", task, self.tasks, OWN_TASK),
            ("split", split, self.splits, ""),
        ):
            if given is not None:
                require_name(f"{what} of the protocol {self.title!r}", given, known, remedy)
        return [
            Trial(task=of_task, split=of_split, index=index, seed=seed)
            for of_task in self.tasks
            if task in (None, of_task)
            for of_split, its_scenes in self.splits.items()
            if split in (None, of_split)
            for index, seed in enumerate(its_scenes.seeds()[:scenes])
        ]

    def own_file(self, task: str) -> TaskFile | None:
        """Returns the file of one of its tasks; None if it is the package's.

        Raises:
            UnknownNameError: It is neither; a path in strange data leads nowhere.
        """
        if task not in self.task_files:
            require_name("task of the package", task, task_names())
        return self.task_files.get(task)

    def load_task(self, task: str) -> TaskConfig:
        """Returns one of its tasks.

        Raises:
            UnknownNameError, ConfigError: It is unknown here, or not valid.
        """
        file = self.own_file(task)
        return load_task(task) if file is None else file.load()

    def gentle_limits(self, task: str) -> GentleLimits | None:
        """Returns the limits of a gentle success in one of its tasks; None if it has none.

        Raises:
            UnknownNameError, ConfigError: See `load_task`.
        """
        return _gentle_limits(self.own_file(task) or task)

    def make_env(self, task: str, *, trusted: bool = False, **kwargs: Any) -> "ToolUseEnv":
        """Makes an environment of one of its tasks.

        Args:
            task: Name of the task.
            trusted: Whether functions that its file names may run, see `EnvSpec.make_stored`.
            kwargs: Keyword arguments of the environment.

        Raises:
            FleetToolsError: See `EnvSpec.make_stored`.
        """
        file = self.own_file(task)
        if file is None:
            return EnvSpec.of(**{**kwargs, "task": task}).make_tool_use()
        source = f"the protocol {self.title!r}"
        spec = EnvSpec(id=CUSTOM_ID, kwargs={**kwargs, "task": task})
        return spec.make_stored(file, source, ResultError, trusted=trusted)


# Scores of many results are of few tasks, and reading YAML takes longer than all their numbers.
@functools.cache
def _gentle_limits(task: str | TaskFile) -> GentleLimits | None:
    return (load_task(task) if isinstance(task, str) else task.content()).gentle


def task_digests(protocol: Protocol) -> dict[str, str]:
    """Returns the hashes of the protocol's task files by task, of the package's as of here.

    Raises:
        UnknownNameError: It has a task that is unknown here.
    """
    files = {name: protocol.own_file(name) or read_task_file(name) for name in protocol.tasks}
    return {name: file.content_digest for name, file in files.items()}


def protocol_digest(protocol: Protocol, tasks: Mapping[str, str]) -> str:
    """Returns the hash of a protocol and its task files.

    Args:
        protocol: The protocol.
        tasks: Hashes of its task files, see `task_digests`.
    """
    # Without the files, since these are known by their hashes, and may lie anywhere.
    named = ProtocolFile.model_validate(protocol.model_dump(exclude={"task_files"}))
    return _HashedContent(protocol=named, tasks=dict(tasks)).digest()


class _HashedContent(Value):
    protocol: ProtocolFile
    tasks: dict[str, str]

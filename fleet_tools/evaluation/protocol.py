"""What is evaluated: tasks, splits and the seeds of their scenes, as a YAML file fixes them.

The horizon and what counts as success are the task files'. What a policy observes is its own
affair. Success is counted at the end and at any time; episodes in which the simulator failed are
counted apart.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import pydantic

from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.config.values import Count, Value, load_yaml
from fleet_tools.dataset.header import read_task_file
from fleet_tools.errors import UnknownNameError
from fleet_tools.sim.scene import check_randomization
from fleet_tools.sim.seeds import EVALUATION
from fleet_tools.sim.splits import model_pairs
from fleet_tools.utils.resources import task_configs_root


def _of_evaluation(seed: int) -> int:
    if seed not in EVALUATION:
        raise ValueError(
            f"seeds of evaluation lie from {EVALUATION.start} (2^52) to {EVALUATION[-1]}, for "
            "smaller ones are trained with"
        )
    return seed


class Scenes(Value):
    """The scenes of a split, the same number for each task.

    Attributes:
        scenes: How many.
        first_seed: Scene k of each task is drawn by `first_seed + k`.
    """

    scenes: Count
    first_seed: Annotated[int, pydantic.AfterValidator(_of_evaluation)]

    def seeds(self) -> range:
        """Returns the seeds of all scenes, in their order."""
        return range(self.first_seed, self.first_seed + self.scenes)


class Trial(Value):
    """One episode that a protocol asks for.

    Attributes:
        task: Name of a task of the package.
        split: From which tool and object are drawn; see `fleet_tools.sim.splits`.
        index: Which of the split's scenes, from 0.
        seed: Of the scene.
    """

    task: str
    split: str
    index: pydantic.NonNegativeInt
    seed: int

    @property
    def key(self) -> tuple[str, str, int]:
        """What names it within a protocol: task, split and index."""
        return self.task, self.split, self.index


class Protocol(Value):
    """An evaluation, so that two policies that went through it can be compared.

    Attributes:
        name, version: Together they name it; a published version never changes.
        description: What it is for.
        tasks: Names of tasks of the package.
        randomization: See `fleet_tools.sim.scene.sample_scene`.
        splits: By name; see `fleet_tools.sim.splits`.
    """

    name: str
    version: Count
    description: str
    tasks: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    randomization: Literal["on", "off"] | dict[str, bool] = "on"
    splits: Annotated[dict[str, Scenes], pydantic.Field(min_length=1)]

    @pydantic.model_validator(mode="after")
    def _no_scene_counts_twice(self):
        if len(set(self.tasks)) < len(self.tasks):
            raise ValueError(f"a task is given twice: {list(self.tasks)}")
        end, before = EVALUATION.start, None
        for name, scenes in sorted(self.splits.items(), key=lambda item: item[1].first_seed):
            if scenes.first_seed < end:
                raise ValueError(f"the splits {before!r} and {name!r} share seeds")
            end, before = scenes.seeds().stop, name
            _of_evaluation(scenes.seeds()[-1])
        return self

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name} v{self.version}"

    def trials(
        self, task: str | None = None, split: str | None = None, episodes: int | None = None
    ) -> list[Trial]:
        """Returns the episodes that it asks for, in its order.

        Args:
            task, split: Only those; all if None.
            episodes: At most so many of each task and split, the first ones; all if None.

        Raises:
            UnknownNameError: There is no such task or split in it.
        """
        for what, given, known in (("task", task, self.tasks), ("split", split, self.splits)):
            if given is not None and given not in known:
                raise UnknownNameError(f"{what} in the protocol {self.title!r}", given, known)
        return [
            Trial(task=of_task, split=of_split, index=index, seed=seed)
            for of_task in self.tasks
            if task in (None, of_task)
            for of_split, scenes in self.splits.items()
            if split in (None, of_split)
            for index, seed in enumerate(scenes.seeds()[:episodes])
        ]


def protocol_names() -> list[str]:
    """The protocols that come with the package."""
    return sorted(path.stem for path in _root().glob("*.yaml"))


def load_protocol(name_or_path: str) -> Protocol:
    """Reads a protocol of the package by name, or one's own by path.

    Raises:
        UnknownNameError: There is no such protocol, or it names a task or split that is not there.
        ConfigError: The file says something that it may not say.
    """
    path = Path(os.path.expanduser(name_or_path))
    if name_or_path in protocol_names():
        path = _root() / f"{name_or_path}.yaml"
    elif not (path.suffix in (".yaml", ".yml") and path.is_file()):
        remedy = "One of your own is given by the path of its YAML."
        raise UnknownNameError("protocol", name_or_path, protocol_names(), remedy)
    protocol = load_yaml(Protocol, path)
    check_randomization(protocol.randomization)
    for name in protocol.tasks:
        if name not in task_names():
            raise UnknownNameError("task of the package", name, task_names())
        for split in protocol.splits:
            model_pairs(load_task(name), split)
    return protocol


def task_digests(protocol: Protocol) -> dict[str, str]:
    """Returns the hashes of what the protocol's task files say here, by name."""
    return {name: read_task_file(name).content_digest for name in protocol.tasks}


def protocol_digest(protocol: Protocol, tasks: Mapping[str, str]) -> str:
    """Returns a hash of all that a protocol says, through its task files, too.

    Args:
        protocol: The protocol.
        tasks: See `task_digests`.
    """
    return _Content(protocol=protocol, tasks=dict(tasks)).digest()


class _Content(Value):
    protocol: Protocol
    tasks: dict[str, str]


def _root() -> Path:
    return task_configs_root() / "protocols"

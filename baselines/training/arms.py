"""Arms of an audit: policies that lack a part of the observation, or learn from other data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_tools.baselines.policies.config import policy_config
from fleet_tools.baselines.policies.layout import Kind, kind_of
from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.envs.array_spec import Layout
from fleet_tools.envs.observations import proprioception
from fleet_tools.errors import ConfigError, require_name
from fleet_tools.utils.statistics import paired_interval, wilson_interval

EVERYTHING = "everything"
FIRST_FRAME = "first frame only"
SENSES = "robot's own senses only"

_ENCODERS: Mapping[str, Kind] = {"clouds": "cloud", "images": "image"}


@dataclass(frozen=True)
class Arm:
    """A training run of an audit.

    Attributes:
        task: Name of the task.
        architecture: Name of the architecture.
        name: Name of its observations, or of the source of its demonstrations.
        dataset: Folder of its demonstrations.
        observations: Entries that it reads; empty for all.
        settings: Settings of its architecture.
        validation_fraction: Fraction of the demonstrations for validation.
    """

    task: str
    architecture: str
    name: str
    dataset: Path
    observations: tuple[str, ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    validation_fraction: float = 0.1

    @property
    def folder(self) -> Path:
        """Its folder in the audit's."""
        return Path(self.task, self.architecture, self.name.replace(" ", "_").replace("'", ""))


def observation_arms(
    datasets: Sequence[Path], architectures: Sequence[str], lacking: Sequence[str] = ()
) -> list[Arm]:
    """Returns for each dataset and architecture one arm that reads everything, and others.

    Each of the others lacks one entry besides the robot's proprioception, or all of them, or reads
    them in the first step only.

    Args:
        datasets: Folders of the datasets, one of each task.
        architectures: Names of architectures.
        lacking: Entries to leave out, one in each arm; empty for all arms.

    Raises:
        DatasetError: A dataset cannot be read.
        ConfigError, UnknownNameError: Two datasets are of one task, or have nothing besides
            proprioception; or there is no such architecture or entry.
    """
    arms = []
    for folder in datasets:
        header = Dataset(folder).header
        if any(arm.task == header.task.name for arm in arms):
            raise ConfigError(
                f"{folder} is a second dataset of {header.task.name}. `audit demonstrations` "
                "compares datasets of one task."
            )
        layout = header.observation
        seen = [name for name in layout if name not in proprioception(1)]
        if not seen:
            raise ConfigError(f"{folder} has no observation besides the robot's own sensors.")
        for name in lacking:
            require_name("entry beside the robot's own senses", name, seen)
        without = {EVERYTHING: (), **{f"no {name}": (name,) for name in lacking or seen}}
        if not lacking and len(seen) > 1:
            without[SENSES] = tuple(seen)
        for architecture in architectures:
            for name, missing in without.items():
                reads = tuple(each for each in layout if each not in missing)
                settings = tuple(_without_encoders(architecture, layout, reads))
                arms.append(Arm(header.task.name, architecture, name, folder, reads, settings))
            if not lacking:
                first = (("first_frame", seen),)
                arms.append(
                    Arm(header.task.name, architecture, FIRST_FRAME, folder, settings=first)
                )
    return arms


def _without_encoders(
    architecture: str, layout: Layout, reads: Sequence[str]
) -> list[tuple[str, Any]]:
    """Returns the settings without encoders that have lost all entries."""
    config = policy_config(architecture)
    kinds = {kind_of(name, layout[name]) for name in reads}
    return [
        (key, None)
        for key, kind in _ENCODERS.items()
        if getattr(config, key) is not None and kind not in kinds
    ]


def demonstration_arms(
    datasets: Sequence[Path], architectures: Sequence[str], episodes: Sequence[int]
) -> list[Arm]:
    """Returns an arm for each dataset, architecture and number of episodes to learn from.

    Args:
        datasets: Folders of the datasets; the others are compared to the first.
        architectures: Names of architectures.
        episodes: Numbers of episodes to learn from; empty for nine tenths of the smallest dataset.

    Raises:
        DatasetError: A dataset cannot be read.
        ConfigError: The datasets differ in task or observations, or one has too few episodes.
    """
    headers = [Dataset(folder).header for folder in datasets]
    for folder, header in zip(datasets, headers, strict=True):
        if (header.task.name, header.observation) != (headers[0].task.name, headers[0].observation):
            raise ConfigError(
                f"{folder} has another task or other observations than {datasets[0]}. Compare "
                "datasets that differ only in the source of their actions."
            )
    sizes = [sum(record.success for record in Dataset(folder).stored()) for folder in datasets]
    numbers = tuple(episodes) or (round(0.9 * min(sizes)),)
    for folder, size in zip(datasets, sizes, strict=True):
        if max(numbers) >= size:
            raise ConfigError(
                f"{folder} has {size} successful episodes, of which at least one is used for "
                f"validation; {max(numbers)} for training were requested. Collect more."
            )
    return [
        Arm(
            headers[0].task.name,
            architecture,
            f"{folder.name}, {number} episodes",
            folder,
            validation_fraction=1 - number / size,
        )
        for architecture in architectures
        for number in sorted(numbers)
        for folder, size in zip(datasets, sizes, strict=True)
    ]


def table_row(
    arm: Arm, successes: Mapping[str, Any], reference: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Returns the success of an arm, as plain JSON data.

    Args:
        arm: The arm.
        successes: Its rollouts, see `rollouts.TaskSuccesses`.
        reference: Rollouts of the first arm of its task and architecture, in the same scenes; None
            for the first arm.
    """
    solved, scenes = set(successes["solved"]), successes["episodes"]
    row = {
        "task": arm.task,
        "architecture": arm.architecture,
        "arm": arm.name,
        "successes": len(solved),
        "scenes": scenes,
        "interval": list(wilson_interval(len(solved), scenes)),
    }
    if reference is not None:
        others = set(reference["solved"])
        pairs = (len(solved - others), len(others - solved), scenes)
        row["of_first"] = len(solved) / len(others) if others else None
        row["difference"] = (len(solved) - len(others)) / scenes
        row["difference_interval"] = list(paired_interval([pairs]))
    return row

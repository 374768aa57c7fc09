"""Training targets: actions of demonstrations or of a teacher, or keypoints in clouds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.layout import Scaling
from fleet_tools.baselines.policies.reading import (
    CLOUD,
    HAND,
    NAMES,
    PARTS,
    Reading,
    RotationalSymmetry,
    TaskReading,
    in_other_frame,
)
from fleet_tools.baselines.training.config import SymmetryOption
from fleet_tools.baselines.training.demonstrations import (
    Trajectories,
    blueprint_of,
    require_same_policy,
    split,
)
from fleet_tools.baselines.training.distillation import teacher_actions
from fleet_tools.config.cameras import IDEAL, SensorName
from fleet_tools.config.values import parse
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.stored_episode import StoredEpisode
from fleet_tools.envs.array_spec import ArraySpec
from fleet_tools.envs.observation_modes import observation_kwargs
from fleet_tools.errors import ConfigError, DatasetError, UnknownNameError, require_name
from fleet_tools.storage.provenance import TaskFile

Labels = Callable[[Samples], np.ndarray | None]
"""Returns the targets of each step of samples, (steps, n); None for their actions."""


@dataclass(frozen=True, eq=False)
class TrainingTarget:
    """A training target.

    Attributes:
        blueprint: Blueprint of the trained policy or detector.
        samples: All samples.
        training: Training samples.
        validation: The others, if there are any.
        labels: The targets.
        every_step: Whether all steps have targets.
    """

    blueprint: Blueprint
    samples: Samples
    training: Samples
    validation: Samples | None
    labels: Labels = lambda samples: None
    every_step: bool = False

    def trajectories(self, part: Samples, device: str) -> Trajectories:
        """Returns a part of the samples as trajectories, with their targets."""
        return Trajectories(part, self.blueprint, device, self.labels(part), self.every_step)


def imitation(
    folders: Sequence[Path],
    config: PolicyConfig,
    model: Blueprint | None,
    teacher: Path | None,
    *,
    fraction: float,
    seed: int,
    check: bool,
) -> TrainingTarget:
    """Returns the training target of demonstrated actions, or of a teacher's actions.

    Args:
        folders: Folders of the demonstrations.
        config: Configuration of the policy.
        model: A blueprint to take over, if there is one.
        teacher: Checkpoint of the teacher, if there is one.
        fraction: Fraction of the episodes for validation.
        seed: Seed of their draw.
        check: See `Samples`.

    Raises:
        FleetToolsError: See `Samples`, `split`, `blueprint_of` and `load_checkpoint`.
    """
    checkpoint = None if teacher is None else load_checkpoint(teacher)
    samples = Samples(
        folders,
        observations=config.reads or None,
        failures=checkpoint is not None,
        check=check,
    )
    training, validation = _parts(samples, fraction, seed)
    blueprint = blueprint_of(config, training)
    if model is not None:
        require_same_policy(blueprint, model)
        blueprint = model
    if checkpoint is None:
        return TrainingTarget(blueprint, samples, training, validation)
    return TrainingTarget(
        blueprint, samples, training, validation, lambda part: teacher_actions(checkpoint, part)
    )


def keypoint_reading(
    folders: Sequence[Path],
    config: PolicyConfig,
    symmetries: Sequence[SymmetryOption],
    *,
    fraction: float,
    seed: int,
    check: bool,
) -> TrainingTarget:
    """Returns the training target of keypoints in clouds, see `policies.reading`.

    Args:
        folders: Folders of episodes with `obs_mode="cloud_and_keypoints"`, with any sensors.
        config: Configuration of the detector, which reads only the cloud.
        symmetries: Symmetries of parts.
        fraction: Fraction of the episodes for validation.
        seed: Seed of their draw.
        check: See `Samples`.

    Raises:
        ConfigError: The detector has a memory or a head that is not linear, or no keypoint is off
            the axis of a symmetry.
        UnknownNameError: The data lack the task or a keypoint of a symmetry.
        FleetToolsError: See `Samples`, `split` and `Blueprint.of`.
    """
    if config.with_memory or config.head.type != "linear" or config.chunk > 1:
        raise ConfigError(
            "A keypoint detector needs a network that reads one cloud and returns one row of "
            "numbers: choose --architecture pointnet_mlp, with the linear head and without chunks."
        )
    samples = Samples(folders, observations=[CLOUD, HAND, *NAMES], check=check)
    reading = _reading(samples, symmetries)
    training, validation = _parts(samples, fraction, seed, every_step=True)
    action = ArraySpec(
        kind="state",
        shape=(reading.size,),
        dtype="float32",
        unit=f"{reading.unit_m:g} m, 1",
        frame="end effector",
        rate_hz=samples.action.rate_hz,
    )
    kwargs = [
        {name: value for name, value in _cloud_kwargs(each).items() if name != "sensors"}
        for each in samples.episodes
    ]
    if any(each != kwargs[0] for each in kwargs):
        raise DatasetError(
            "The datasets have clouds of different sizes or sources (cloud_size, camera_size, "
            "...). Train on datasets that differ in no more than their sensors."
        )
    blueprint = Blueprint.of(
        config.model_copy(update={"reads": (CLOUD,)}),
        samples.observation,
        action,
        Scaling(mean={}, std={}),
        kwargs[0],
    )
    blueprint = parse(
        Blueprint, {**dict(blueprint), "reading": reading}, "The detector's blueprint"
    )
    return TrainingTarget(
        blueprint, samples, training, validation, partial(_targets, reading), every_step=True
    )


def _cloud_kwargs(episode: StoredEpisode) -> dict[str, Any]:
    return observation_kwargs({**episode.header.env_spec.kwargs, "obs_mode": "point_cloud"})


def _parts(
    samples: Samples, fraction: float, seed: int, *, every_step: bool = False
) -> tuple[Samples, Samples | None]:
    if fraction > 0:
        return split(samples, fraction, seed, every_step=every_step)
    return samples, None


def _reading(samples: Samples, symmetries: Sequence[SymmetryOption]) -> Reading:
    """Returns the layout of keypoints in episodes with padded keypoints."""
    from fleet_tools.config.tasks import load_task

    for name in NAMES:
        if samples.observation[name].kind != "masked_keypoints":
            raise DatasetError(
                "The keypoints of the dataset have another layout. Collect with "
                "obs_mode=cloud_and_keypoints, or observe episodes again by `python -m "
                "fleet_tools.dataset observe`."
            )
    specs = {each.task: each.header.env_spec for each in samples.episodes}
    for each in symmetries:
        require_name("task", each.task, specs)
    tasks = []
    for name in specs:
        own = [each for each in symmetries if each.task == name]
        some = samples.subset(
            [k for k, each in enumerate(samples.episodes) if each.task == name][:_LOOKED_AT]
        )
        observed = some.read(np.arange(int(some.lengths.sum())))["observation"]
        counts = {
            part: int(observed[entry][0, :, 3].sum())
            for part, entry in zip(PARTS, NAMES, strict=True)
        }
        keypoints = load_task(specs[name].task).keypoints if own else None
        found = tuple(
            _symmetry(each, getattr(keypoints, each.part), observed[f"{each.part}_keypoints"])
            for each in own
        )
        content = {"name": name, **counts, "symmetries": found}
        tasks.append(parse(TaskReading, content, f"What is read of {name}"))
    rows = samples.observation[NAMES[0]].shape[0]
    return parse(Reading, {"tasks": tuple(tasks), "rows": rows}, "What is read")


_LOOKED_AT = 20
"""Number of episodes of a task in the search for keypoints off an axis."""
_ROWS = 4096
"""Number of steps read at once."""
_OFF_AXIS_M = 1e-3
_ALONG = 0.9
"""Cosine of the angle to the axis above which an axis of the frame is no reference."""


def _symmetry(
    option: SymmetryOption, names: Sequence[str], points: np.ndarray
) -> RotationalSymmetry:
    """Returns a symmetry with the marker farthest from its axis, and a reference across the axis.

    Args:
        option: Its options.
        names: Names of the part's keypoints.
        points: Keypoints in some steps, (n, rows, 4).
    """
    for name in option.axis:
        if name not in names:
            raise UnknownNameError(f"keypoint of the {option.part}", name, names)
    axis = tuple(names.index(name) for name in option.axis)
    start, end = (points[:, row, :3].astype(float) for row in axis)
    z = (end - start) / np.maximum(np.linalg.norm(end - start, axis=-1, keepdims=True), 1e-9)
    arms = points[:, : len(names), :3] - start[:, None]
    distances = np.linalg.norm(np.cross(arms, z[:, None]), axis=-1).mean(0)
    reference = int(np.abs(z).max(0).argmin())
    if distances.max() < _OFF_AXIS_M or np.abs(z)[:, reference].max() > _ALONG:
        raise ConfigError(
            f"The angle of the {option.part} of {option.task} about {' to '.join(option.axis)} "
            "cannot be determined: no keypoint lies off this axis, or the hand turns fully around "
            "it. Choose another axis."
        )
    found = {
        "part": option.part,
        "fold": option.fold,
        "axis": axis,
        "marker": int(distances.argmax()),
        "reference": reference,
    }
    return parse(RotationalSymmetry, found, "The symmetry")


def _targets(reading: Reading, samples: Samples) -> np.ndarray:
    """Returns the targets of all steps of samples, (steps, n)."""
    numbers = [task.name for task in reading.tasks]
    tasks = np.repeat([numbers.index(each.task) for each in samples.episodes], samples.lengths)
    delayed = np.repeat(_delayed(samples.episodes), samples.lengths)
    delayed[samples.starts] = False  # cameras begin with the present
    targets = [np.zeros((0, reading.size), np.float32)]
    for rows in np.split(np.arange(len(tasks)), range(_ROWS, len(tasks), _ROWS)):
        first = max(rows[0] - 1, 0)
        observed = samples.read(np.arange(first, rows[-1] + 1))["observation"]
        now, then = rows - first, rows - delayed[rows] - first
        tool, object = (observed[name][..., :3].astype(float) for name in NAMES)
        X_WE = observed[HAND].astype(float)
        shown = in_other_frame(tool[then], X_WE[then], X_WE[now])
        targets.append(reading.targets((shown, object[now]), tasks[rows]))
    return np.concatenate(targets)


def _delayed(episodes: Sequence[StoredEpisode]) -> list[bool]:
    """Returns for each episode whether its cameras show the step before."""
    cameras: list[tuple[TaskFile, SensorName]] = [
        (each.header.task, cast(SensorName, each.header.env_spec.kwargs.get("sensors", IDEAL)))
        for each in episodes
    ]
    sensors = {(task, name): task.content().sensors.named(name) for task, name in set(cameras)}
    return [(sensor := sensors[each]) is not None and sensor.delay_steps == 1 for each in cameras]

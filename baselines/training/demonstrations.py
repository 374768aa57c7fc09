"""Demonstrations: their split, the blueprint of a policy, and their tensors."""

import hashlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.layout import Scaling
from fleet_tools.config.values import differences
from fleet_tools.dataset.normalization import normalization_of
from fleet_tools.dataset.samples import Samples, window_steps
from fleet_tools.errors import ConfigError, DatasetError
from fleet_tools.utils import machine


def content_digest(samples: Samples) -> str:
    """Returns a hash of the episodes of samples, by their final states."""
    listed = [[each.task, each.record.seed, each.record.state_digest] for each in samples.episodes]
    return hashlib.blake2b(json.dumps(listed).encode(), digest_size=8).hexdigest()


def require_steps(samples: Samples, part: str, remedy: str) -> None:
    """Checks that a part of the data has a step to imitate.

    Args:
        samples: The part.
        part: Its name in the message, such as "The validation part".
        remedy: How to get another one.

    Raises:
        DatasetError: It has none.
    """
    if not samples.imitate.any():
        names = [f"{each.task} {each.record.attempt}" for each in samples.episodes[:5]]
        more = f" and {len(samples.episodes) - 5} more" * (len(samples.episodes) > 5)
        raise DatasetError(
            f"{part} holds no step to imitate: its episodes ({', '.join(names)}{more}) have "
            f"{int(samples.lengths.sum())} steps, all with noise. {remedy}"
        )


def split(
    samples: Samples, fraction: float, seed: int, *, every_step: bool = False
) -> tuple[Samples, Samples]:
    """Splits samples by episodes, at random.

    Args:
        samples: The samples.
        fraction: Fraction of the episodes in the second part, between 0 and 1.
        seed: Seed of the draw.
        every_step: Whether steps with noise have targets, too.

    Returns:
        The samples for training, and for validation; both have steps with targets.

    Raises:
        ConfigError: There are too few episodes for both.
        DatasetError: A part has no step to imitate.
    """
    episodes = len(samples.episodes)
    count = max(1, round(fraction * episodes))
    if count >= episodes:
        raise ConfigError(
            f"Of {episodes} episode{'s' * (episodes != 1)}, none is left for training when a "
            f"fraction of {fraction:g}, at least one episode, is used for validation. Collect "
            f"more, or give a smaller {_FRACTION}."
        )
    order = np.random.default_rng(seed).permutation(episodes)
    parts = samples.subset(sorted(order[count:])), samples.subset(sorted(order[:count]))
    for name, part in zip(("training", "validation"), parts, strict=True):
        if not every_step:
            require_steps(
                part,
                f"The {name} part ({len(part.episodes)} of {episodes} episodes, seed {seed})",
                f"Give another seed or {_FRACTION}, or collect more.",
            )
    return parts


_FRACTION = "fraction (--validation-fraction of `train`, where 0 is allowed; `held_out` of a fleet)"


def blueprint_of(config: PolicyConfig, samples: Samples) -> Blueprint:
    """Returns the blueprint of a policy for samples, with their scaling.

    Raises:
        LayoutError, UnknownNameError: The policy cannot read them.
        DatasetError: Their observations differ in kind or have numbers that are not finite, or a
            file cannot be read.
    """
    if samples.env_kwargs is None:
        raise DatasetError(
            "The datasets have different kinds of observations (obs_mode, camera_size, ...), so no "
            "environment could run the policy. Train on datasets of one kind."
        )
    Blueprint.of(config, samples.observation, samples.action)  # before all data are read
    scaling = Scaling.of(normalization_of(samples).observation)
    return Blueprint.of(config, samples.observation, samples.action, scaling, samples.env_kwargs)


def require_same_policy(blueprint: Blueprint, model: Blueprint) -> None:
    """Checks that two blueprints differ only in their scaling.

    Policies of one blueprint can be merged. So a policy for a later merge takes over the scaling of
    the other, see `--like` of `python -m fleet_tools.baselines.train`.

    Args:
        blueprint: Blueprint that follows from the data.
        model: Blueprint of the other policy.

    Raises:
        ConfigError: They differ in more; the message lists the differences.
    """
    parts = [each.model_dump(mode="json", exclude={"scaling"}) for each in (blueprint, model)]
    if found := differences(*parts):
        raise ConfigError(
            "A policy of these datasets would differ from the checkpoint of --like: "
            f"{'; '.join(found)}. Give datasets of the same layout, or --architecture instead of "
            "--like."
        )


_MEMORY_FRACTION = 0.4
"""Fraction of the free memory that demonstrations may take."""


@dataclass(frozen=True, eq=False)
class Batch:
    """B trajectories of at most T steps.

    Attributes:
        observations: (B, T, *shape) by name.
        actions: (B, T, chunk, 6): the actions of a step and of the next steps. Entries after the
            end of an episode repeat its last step.
        imitated: (B, T, chunk) bool, True for actions to imitate.
    """

    observations: dict[str, torch.Tensor]
    actions: torch.Tensor
    imitated: torch.Tensor

    @property
    def mask(self) -> torch.Tensor:
        """(B, T) bool, True for steps to imitate."""
        return self.imitated[..., 0]


class Trajectories:
    """Observations and actions of all steps of some episodes.

    Policies with memory read steps with noise in their actions, but do not imitate them. Where a
    learner acted, they imitate the expert (`experts.demonstrators`). Data that fit into the
    device's memory are stored there; others are read from the disk batch by batch.

    Args:
        samples: The episodes, cut into windows or not.
        blueprint: Blueprint of the policy. It determines the entries to read; a policy with memory
            learns from whole episodes.
        device: Device of the batches.
        taught: Actions to imitate instead of the recorded ones, (steps, 6); see
            `distillation.teacher_actions`.
        every_step: Whether to imitate these in all steps.
        lacks: Names of entries that the robot lacks: they are not read, see `Blueprint.absent`.

    Attributes:
        device: As given.
        with_memory: Whether items are episodes instead of steps.
        lengths: (n,) numbers of steps of the episodes that are not empty.
        imitated: (steps,) bool, True for steps to imitate.
        nbytes: Size of the observations of all steps.

    Raises:
        DatasetError: There is no step to imitate, an episode's `info` is not valid, or a file
            cannot be read.
    """

    def __init__(
        self,
        samples: Samples,
        blueprint: Blueprint,
        device: str | torch.device = "cpu",
        taught: np.ndarray | None = None,
        every_step: bool = False,
        lacks: Collection[str] = (),
    ) -> None:
        self.device = torch.device(device)
        self.with_memory = blueprint.with_memory
        filled = samples.lengths > 0
        self.lengths, self._starts = samples.lengths[filled], samples.starts[filled]
        self.imitated = samples.imitate | every_step
        self._chunk = np.arange(blueprint.config.chunk)
        self._last = np.repeat(self._starts + self.lengths - 1, self.lengths)  # of a row's episode
        corrected = np.zeros(len(self.imitated) + 1, np.int64)
        corrected[samples.corrections[0] + 1] = 1
        self._corrections_before = np.cumsum(corrected)
        if not every_step:
            require_steps(samples, "The data", "Collect more.")
        elif not self.imitated.any():
            raise DatasetError("The episodes have no steps to learn from. Collect others.")
        self._taught = taught
        self._samples, self._names = samples, list(blueprint.observation)
        self._absent = {name: self._on_device(blueprint.absent(name)[None]) for name in lacks}
        self._shapes = {name: blueprint.observation[name].shape for name in lacks}
        self._kept = blueprint.config.first_frame
        self._first = np.repeat(self._starts, self.lengths)  # step of a row's episode
        self._in_memory: tuple[dict[str, torch.Tensor], torch.Tensor] | None = None
        self.nbytes = self._bytes(blueprint)
        if self.nbytes < _MEMORY_FRACTION * _free_memory(self.device):
            self._in_memory = self._read(np.arange(len(self.imitated)))

    @property
    def steps(self) -> int:
        """The number of steps to imitate."""
        return int(self.imitated.sum())

    def order(self, size: int, generator: np.random.Generator | None) -> list[np.ndarray]:
        """Returns the batches of a pass over all data, each as indices of its items.

        An item is an episode for a policy with memory, and otherwise a step.

        Args:
            size: Approximate number of steps in a batch.
            generator: Draws the order; None keeps it.
        """
        items = np.arange(len(self.lengths)) if self.with_memory else np.flatnonzero(self.imitated)
        if generator is not None:
            items = generator.permutation(items)
        steps = self.lengths[items] if self.with_memory else np.ones(len(items), np.int64)
        after = np.cumsum(steps)
        batches = (after - (steps + 1) // 2) // size  # by the position of an item's middle
        return np.split(items, np.flatnonzero(np.diff(batches)) + 1)

    def imitated_steps(self, items: np.ndarray) -> int:
        """Returns the number of steps to imitate in items, without reading them."""
        if not self.with_memory:
            return int(self.imitated[items].sum())
        bounds = zip(self._starts[items], self._starts[items] + self.lengths[items], strict=True)
        return sum(int(self.imitated[start:end].sum()) for start, end in bounds)

    def rows(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the steps of items, padded at the end by the last one.

        Args:
            items: Indices of items, as `order` returns them.

        Returns:
            Indices of steps, (B, T), and whether they are within the item, (B, T).
        """
        lengths = self.lengths[items] if self.with_memory else np.ones(len(items), np.int64)
        starts = self._starts[items] if self.with_memory else items
        return window_steps(starts, lengths, lengths.max())

    def episodes(self) -> Iterator[dict[str, torch.Tensor]]:
        """Returns the observations of all steps of each episode, (T, *shape) by name."""
        for start, length in zip(self._starts, self.lengths, strict=True):
            rows = np.arange(start, start + length)
            if self._in_memory is None:
                yield self._read(rows)[0]
            else:
                yield {name: each[rows] for name, each in self._in_memory[0].items()}

    def batch(self, items: np.ndarray) -> Batch:
        """Returns items, padded at the end.

        Args:
            items: Indices of items, as `order` returns them.
        """
        rows, within = self.rows(items)
        ahead = rows[..., None] + self._chunk
        following = np.minimum(ahead, self._last[rows][..., None])  # in the same episode
        imitated = within[..., None] & (ahead == following) & self.imitated[following]
        # The expert's next actions do not follow its correction, but the learner's action.
        before = self._corrections_before
        imitated &= before[following] == before[rows][..., None]
        # What follows noise responds to it, and no policy foresees it.
        imitated = np.logical_and.accumulate(imitated, axis=-1)
        if self._in_memory is None:
            read = np.unique(following)
            observed, actions = self._read(read)
            rows, following = (np.searchsorted(read, each) for each in (rows, following))
        else:
            observed, actions = self._in_memory
        rows, following = (torch.from_numpy(each).to(self.device) for each in (rows, following))
        return Batch(
            {name: tensor[rows] for name, tensor in observed.items()},
            actions[following],
            torch.from_numpy(imitated).to(self.device),
        )

    def _read(self, rows: np.ndarray) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        read = self._samples.read(rows)
        observation = read["observation"]
        if self._kept:
            firsts, which = np.unique(self._first[rows], return_inverse=True)
            first = self._samples.read(firsts)["observation"]
            kept = [name for name in self._kept if name not in self._absent]
            observation = {**observation, **{name: first[name][which] for name in kept}}
        observed = {
            name: self._absent[name].expand(len(rows), *self._shapes[name])
            if name in self._absent
            else self._on_device(observation[name])
            for name in self._names
        }
        actions = read["action"] if self._taught is None else self._taught[rows]
        return observed, self._on_device(actions)

    def _on_device(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    def _bytes(self, blueprint: Blueprint) -> int:
        arrays = blueprint.observation.values()
        return len(self.imitated) * sum(
            int(np.prod(array.shape)) * np.dtype(array.dtype).itemsize for array in arrays
        )


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":  # data pass through the machine's memory, too
        return min(torch.cuda.mem_get_info(device)[0], machine.available_memory())
    return machine.available_memory()

"""Demonstrations as tensors, and the order in which they are learned from."""

from dataclasses import dataclass

import numpy as np
import torch

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.episode import UNMEANT
from fleet_tools.utils import machine

_SHARE_OF_MEMORY = 0.4
"""What demonstrations that are held in memory may take of what is free."""


@dataclass(frozen=True, eq=False)
class Batch:
    """B trajectories of at most T steps.

    Attributes:
        observations: (B, T, *shape) by name.
        actions: (B, T, 6).
        mask: (B, T) bool, True where there is a step to imitate. Places after an episode's end
            hold its last step once more.
    """

    observations: dict[str, torch.Tensor]
    actions: torch.Tensor
    mask: torch.Tensor


class Trajectories:
    """What a policy reads and is to do, in all steps of some episodes.

    A step whose action was not meant (`episode.UNMEANT`) is read by policies with memory, and not
    imitated. All lies on the device where there is room, and is read from the disk batch by batch
    where there is not.

    Args:
        samples: Single steps.
        blueprint: What of them is read; whether it has a memory, and so learns from episodes.
        device: Where batches are wanted.

    Attributes:
        device: As given.
        with_memory: Whether items are episodes, not steps.
        lengths: (n,) steps of every episode that has any.
        meant: (steps,) bool, whether a step is to be imitated.

    Raises:
        DatasetError: The samples are windows, there is no step to imitate, or a file cannot be
            read.
    """

    def __init__(
        self, samples: Samples, blueprint: Blueprint, device: str | torch.device = "cpu"
    ) -> None:
        if samples.sequence_length is not None:
            raise DatasetError("Trajectories are put together out of single steps, not windows.")
        self.device = torch.device(device)
        self.with_memory = blueprint.config.body.type != "mlp"
        episodes = [episode for episode in samples.episodes if episode.record.steps > 0]
        self.lengths = np.array([episode.record.steps for episode in episodes], np.int64)
        self.meant = np.ones(self.lengths.sum(), bool)
        self._starts = np.cumsum(self.lengths) - self.lengths
        for start, episode in zip(self._starts, episodes, strict=True):
            self.meant[start + np.array(episode.record.info.get(UNMEANT, []), np.int64)] = False
        if not self.meant.any():
            raise DatasetError("There is nothing to learn from episodes without a step to imitate.")
        self._samples, self._names = samples, list(blueprint.observation)
        self._held: tuple[dict[str, torch.Tensor], torch.Tensor] | None = None
        if self._bytes(blueprint) < _SHARE_OF_MEMORY * _free_memory(self.device):
            self._held = self._read(np.arange(len(self.meant)))

    @property
    def steps(self) -> int:
        """The number of steps to imitate."""
        return int(self.meant.sum())

    def order(self, size: int, generator: np.random.Generator | None) -> list[np.ndarray]:
        """Returns a pass over everything: items of one batch after another.

        An item is a step for a policy without memory, otherwise an episode.

        Args:
            size: About how many steps a batch has.
            generator: Draws the order; None keeps it.
        """
        items = np.arange(len(self.lengths)) if self.with_memory else np.flatnonzero(self.meant)
        if generator is not None:
            items = generator.permutation(items)
        steps = self.lengths[items] if self.with_memory else np.ones(len(items), np.int64)
        after = np.cumsum(steps)
        batches = (after - (steps + 1) // 2) // size  # by where the middle of an item lies
        return np.split(items, np.flatnonzero(np.diff(batches)) + 1)

    def batch(self, items: np.ndarray) -> Batch:
        """Returns some items, padded at their ends.

        Args:
            items: Of `order`.
        """
        lengths = self.lengths[items] if self.with_memory else np.ones(len(items), np.int64)
        starts = self._starts[items] if self.with_memory else items
        ages = np.arange(lengths.max())
        rows = starts[:, None] + np.minimum(ages, lengths[:, None] - 1)
        mask = torch.from_numpy((ages < lengths[:, None]) & self.meant[rows]).to(self.device)
        if self._held is None:
            observed, actions = self._read(rows.ravel())
        else:
            chosen = torch.from_numpy(rows.ravel()).to(self.device)
            observed = {name: held[chosen] for name, held in self._held[0].items()}
            actions = self._held[1][chosen]
        shaped = {name: tensor.unflatten(0, rows.shape) for name, tensor in observed.items()}
        return Batch(shaped, actions.unflatten(0, rows.shape), mask)

    def _read(self, rows: np.ndarray) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        gathered = self._samples.gather(rows)
        move = lambda array: torch.from_numpy(array).to(self.device)  # noqa: E731
        observed = {name: move(gathered["observation"][name]) for name in self._names}
        return observed, move(gathered["action"])

    def _bytes(self, blueprint: Blueprint) -> int:
        arrays = blueprint.observation.values()
        return len(self.meant) * sum(
            int(np.prod(array.shape)) * np.dtype(array.dtype).itemsize for array in arrays
        )


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":  # on its way there, it lies in the machine's memory, too
        return min(torch.cuda.mem_get_info(device)[0], machine.available_memory())
    return machine.available_memory()

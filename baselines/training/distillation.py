"""Labels by a teacher: the actions of another policy in stored or sampled states."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import torch

from fleet_merging.moments.gate import draw
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.heads import first_noise
from fleet_tools.baselines.policies.merged_checkpoints import observations_of
from fleet_tools.baselines.training.demonstrations import Batch, Trajectories
from fleet_tools.dataset.samples import Samples

if TYPE_CHECKING:
    from fleet_tools.baselines.policies.blueprint import Network

_BATCH = 4096


@torch.no_grad()
def teacher_actions(teacher: Checkpoint, samples: Samples) -> np.ndarray:
    """Returns the actions of a policy at all steps of some episodes.

    A policy with memory reads each episode from its beginning. Steps that are not imitated
    (`Trajectories.imitated`) may have zeros.

    Args:
        teacher: The policy.
        samples: Single steps.

    Returns:
        Actions within [-1, 1], float32, (steps, 6).

    Raises:
        DatasetError: See `Trajectories`.
        LayoutError: The samples lack inputs of the policy.
    """
    trajectories = Trajectories(samples, teacher.blueprint)
    network = _network(teacher)
    width = teacher.blueprint.action.shape[0]
    actions = np.zeros((len(trajectories.imitated), width), np.float32)
    generator = np.random.default_rng(0)
    for items in trajectories.order(_BATCH, None):
        rows, within = trajectories.rows(items)
        noise = _noise(teacher, rows.shape, generator)
        chunks = network(trajectories.batch(items).observations, None, *noise)[0].numpy()
        actions[rows[within]] = chunks[within][:, :width].clip(-1, 1)
    return actions


def _network(policy: Checkpoint) -> "Network":
    network = policy.blueprint.create().eval()
    network.load_state_dict(policy.weights)
    return network


def _noise(
    policy: Checkpoint, shape: tuple[int, ...], generator: np.random.Generator
) -> tuple[torch.Tensor, ...]:
    blueprint = policy.blueprint
    return first_noise(blueprint.config.head, (*shape, blueprint.numbers), generator)


class DrawnStates:
    """States drawn from the Gaussians of a density-gated ensemble, with the ensemble's actions.

    Each is an item of one step, without a hidden state. See `loop.Batches`.

    Args:
        observations: Entries of the observation by name, (n, 1, *shape).
        actions: Chunks of actions to imitate, (n, chunk, 6).

    Attributes:
        device: Device of the batches.
    """

    device = torch.device("cpu")

    def __init__(self, observations: dict[str, torch.Tensor], actions: torch.Tensor) -> None:
        self._observations, self._actions = observations, actions

    @classmethod
    @torch.no_grad()
    def of(cls, teacher: Checkpoint, counts: Sequence[int], seed: int) -> Self:
        """Draws states.

        Args:
            teacher: A density-gated ensemble without memory.
            counts: Number of states from the Gaussian of each member.
            seed: Seed of the draws.
        """
        network, generator = _network(teacher), torch.Generator().manual_seed(seed)
        gaussians = zip(teacher.weights["gate.means"], teacher.weights["gate.factors"], strict=True)
        states = torch.cat(
            [
                draw(mean, factor, count, generator)
                for count, (mean, factor) in zip(counts, gaussians, strict=True)
            ]
        )
        (observations,) = observations_of(teacher.blueprint, states)
        actions, noise = [], np.random.default_rng(seed)
        for first in range(0, len(states), _BATCH):
            some = {name: each[first : first + _BATCH] for name, each in observations.items()}
            count = len(states[first : first + _BATCH])
            chunks = network(some, None, *_noise(teacher, (count, 1), noise))[0][:, 0]
            actions.append(chunks.clamp(-1, 1))
        chunk = teacher.blueprint.config.chunk
        return cls(observations, torch.cat(actions).unflatten(1, (chunk, -1)))

    def order(self, size: int, generator: np.random.Generator | None) -> list[np.ndarray]:
        """Returns the batches of a pass over all states, each as indices of its items."""
        count = len(self._actions)
        items = np.arange(count) if generator is None else generator.permutation(count)
        return np.split(items, range(size, count, size))

    def batch(self, items: np.ndarray) -> Batch:
        """Returns states as trajectories of one step."""
        rows = torch.from_numpy(items)
        observations = {name: each[rows] for name, each in self._observations.items()}
        actions = self._actions[rows][:, None]
        return Batch(observations, actions, torch.ones(actions.shape[:3], dtype=torch.bool))

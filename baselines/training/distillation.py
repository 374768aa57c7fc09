"""Labels by a teacher: what another policy would do at the states of stored episodes."""

import numpy as np
import torch

from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.training.trajectories import Trajectories
from fleet_tools.dataset.samples import Samples

_BATCH = 4096


@torch.no_grad()
def teacher_actions(teacher: Checkpoint, samples: Samples) -> np.ndarray:
    """Returns the actions of a policy at all steps of some episodes.

    A policy with memory reads each episode from its beginning. Steps that are not to be imitated
    (`Trajectories.imitated`) may have zeros.

    Args:
        teacher: The policy.
        samples: Single steps.

    Returns:
        Actions within [-1, 1], float32, (steps, 6).

    Raises:
        DatasetError: See `Trajectories`.
        LayoutError: The samples lack what the policy reads.
    """
    trajectories = Trajectories(samples, teacher.blueprint)
    network = teacher.blueprint.create().eval()
    network.load_state_dict(teacher.weights)
    width = teacher.blueprint.action.shape[0]
    actions = np.zeros((len(trajectories.imitated), width), np.float32)
    for items in trajectories.order(_BATCH, None):
        chunks = network(trajectories.batch(items).observations)[0].numpy()
        rows, within = trajectories.rows(items)
        actions[rows[within]] = chunks[within][:, :width].clip(-1, 1)
    return actions

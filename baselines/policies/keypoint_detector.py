"""A policy that detects keypoints in clouds, for a policy that learned from exact keypoints."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from fleet_merging.errors import MergeError
from fleet_merging.symmetry.table import Symmetry
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.bodies import Hidden
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.encoders import part_means
from fleet_tools.baselines.policies.layout import LayoutError
from fleet_tools.baselines.policies.network import GatedNetwork, PolicyNetwork
from fleet_tools.baselines.policies.reading import CLOUD, HAND, NAMES, HeldTool, Reading
from fleet_tools.config.values import parse
from fleet_tools.envs.array_spec import layout_differences

_MEMORY = 2 + len(HeldTool._fields)
"""Number of tensors in a detector's memory, before its policy's."""


class KeypointDetector(PolicyNetwork):
    """A network with a `Reading` as output in place of actions; `Blueprint.create` returns it.

    It learns coordinates relative to the mean of the points of their part.

    Args:
        blueprint: Blueprint of the detector.
        reading: Layout of its output.
    """

    def __init__(self, blueprint: Blueprint, reading: Reading) -> None:
        super().__init__(blueprint)
        self.reading = reading

    def forward(
        self,
        observations: Mapping[str, torch.Tensor],
        hidden: Hidden | None = None,
        *noisy: torch.Tensor,
    ) -> tuple[torch.Tensor, Hidden]:
        """Returns numbers, (B, T, size); see `PolicyNetwork.forward`."""
        numbers, state = super().forward(observations, hidden, *noisy)
        means = part_means(observations[CLOUD]) / self.reading.unit_m
        offsets = means.repeat_interleave(self.reading.rows, -2).flatten(-2)
        others = self.reading.size - self.reading.coordinates
        return numbers + nn.functional.pad(offsets, (0, others)), state


class DetectingNetwork(nn.Module):
    """A keypoint detector, and a policy that acts on its keypoints.

    Its hidden state begins with the sum of the task scores since the beginning of the episode,
    which chooses the task. The angles of parts with a symmetry follow. Then come the entries of a
    `HeldTool`, which corrects the tool's position in the hand, and the policy's hidden state.

    Args:
        detector: Network of the detector.
        policy: Network of the policy.
    """

    def __init__(self, detector: KeypointDetector, policy: PolicyNetwork | GatedNetwork) -> None:
        super().__init__()
        self.detector, self.policy, self._reading = detector, policy, detector.reading

    def forward(
        self,
        observations: Mapping[str, torch.Tensor],
        hidden: Hidden | None = None,
        *noisy: torch.Tensor,
    ) -> tuple[torch.Tensor, Hidden]:
        """Computes chunks of actions; see `PolicyNetwork.forward`."""
        memory, state = (None, None) if hidden is None else (hidden[:_MEMORY], hidden[_MEMORY:])
        keypoints, memory = self.read(observations, memory)
        actions, state = self.policy({**observations, **keypoints}, state, *noisy)
        return actions, (*memory, *state)

    def read(
        self, observations: Mapping[str, torch.Tensor], memory: Hidden | None = None
    ) -> tuple[dict[str, torch.Tensor], Hidden]:
        """Detects keypoints.

        Args:
            observations: See `forward`.
            memory: The memory after the steps before; None at the beginning of episodes.

        Returns:
            Keypoints of tool and object by the names of entries, (B, T, rows, 4), and the memory.
        """
        answers, _ = self.detector(observations)
        numbers = answers.detach().float().cpu().numpy()
        X_WE = observations[HAND].double().cpu().numpy()
        batch, steps, _ = numbers.shape
        scores, followed, held = np.zeros((batch, len(self._reading.tasks))), None, None
        if memory is not None:
            scores, followed, *entries = (each.cpu().numpy() for each in memory)
            held = HeldTool(*entries)
        read = np.zeros((batch, steps, 2, self._reading.rows, 4), np.float32)
        for step in range(steps):
            scores = scores + numbers[:, step, self._reading.coordinates + 8 :]
            angles = np.zeros((batch, 2))
            for row in range(batch):
                former = None if followed is None else followed[row]
                read[row, step], angles[row] = self._reading.keypoints(
                    numbers[row, step], int(scores[row].argmax()), former
                )
            tool, followed = read[:, step, 0], angles
            # Rows without a keypoint repeat the first: zeros would move in the hand.
            shown = np.where(tool[..., 3:] > 0, tool, tool[:, :1])[..., :3].astype(float)
            held = held or HeldTool.begin(shown, X_WE[:, step])
            points, held = held.follow(shown, X_WE[:, step])
            tool[..., :3] = tool[..., 3:] * points
        assert followed is not None and held is not None  # there is a step
        given = torch.from_numpy(read).to(answers.device)
        kept = tuple(
            torch.from_numpy(each).to(answers.device) for each in (scores, followed, *held)
        )
        return {name: given[:, :, number] for number, name in enumerate(NAMES)}, kept

    def symmetry(self) -> Symmetry:
        """Raises an error, since its detector and its policy are merged separately.

        Raises:
            MergeError: Always.
        """
        raise MergeError(
            "A policy with a keypoint detector cannot be merged as one network. Merge the "
            "detectors, merge the policies, and attach the merged detector to the merged policy."
        )


def attached(policy: Checkpoint, detector: Checkpoint) -> Checkpoint:
    """Returns a policy that acts on the keypoints of a keypoint detector.

    Args:
        policy: A policy that learned from keypoints.
        detector: A detector.

    Raises:
        LayoutError: The detector is a policy, or the policy needs keypoints of another layout.
    """
    weights = {
        f"{name}.{key}": weight
        for name, each in (("detector", detector), ("policy", policy))
        for key, weight in each.weights.items()
    }
    return Checkpoint(behind(policy.blueprint, detector.blueprint), weights, policy.notes)


def behind(policy: Blueprint, detector: Blueprint) -> Blueprint:
    """Returns the blueprint of a policy with a keypoint detector; see `attached`."""
    if detector.reading is None:
        raise LayoutError(
            "The checkpoint given as detector is a policy. Train a keypoint detector by `python -m "
            "fleet_tools.baselines.train --keypoints`."
        )
    if policy.reading is not None or policy.detector is not None:
        raise LayoutError(
            "Expected a policy without a keypoint detector, which is not a detector itself."
        )
    keypoints = {name: each for name, each in policy.observation.items() if name in NAMES}
    given = {name: detector.reading.layout for name in NAMES}
    found = layout_differences(keypoints, given) if keypoints else ["there are none"]
    if found:
        raise LayoutError(
            f"The policy's inputs do not match the detector's keypoints: {'; '.join(found)}. Train "
            f"it with obs_mode=multitask_state, keypoint_rows={detector.reading.rows}."
        )
    others = {name: each for name, each in policy.observation.items() if name not in NAMES}
    if HAND not in others:
        raise LayoutError(
            f"The policy does not observe {HAND}, which corrects the pose of a tool in delayed "
            f"images. It observes {', '.join(policy.observation)}. Train it on {HAND}, too."
        )
    observation = dict(sorted({**others, **detector.observation}.items()))
    update = {"observation": observation, "env_kwargs": detector.env_kwargs, "detector": detector}
    return parse(Blueprint, {**dict(policy), **update}, "The blueprint of the policy")

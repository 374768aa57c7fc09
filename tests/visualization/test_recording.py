"""Episodes run for display: what they need, and what the callback receives."""

import numpy as np
import pytest

from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import ConfigError
from fleet_tools.policies.policy import StoredActions
from fleet_tools.visualization.recording import (
    MeshcatRecorder,
    PlannedEpisode,
    render_frame,
    run_observed,
)


def test_every_observation_is_received_once_the_policy_has_acted_on_it(hammer: ToolUseEnv) -> None:
    actions = np.zeros((3, 6), np.float32)
    acted, received = [], []

    class Counted(StoredActions):
        def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
            action = super().act(observation)
            acted.append(action)
            return action

    def receive(observation: dict[str, np.ndarray]) -> None:
        received.append((len(acted), observation))

    episode = run_observed(hammer, PlannedEpisode("", Counted(actions), seed=0), receive)
    assert len(episode) == len(actions)
    assert [count for count, _ in received] == [1, 2, 3, 3]
    for k, (_, observation) in enumerate(received):
        for name, rows in episode.observations.items():
            np.testing.assert_array_equal(observation[name], rows[k])


def test_another_render_mode_is_refused(hammer: ToolUseEnv) -> None:
    hammer.reset(seed=0)
    with pytest.raises(ConfigError, match='render_mode="human"; given: None'):
        MeshcatRecorder(hammer)
    with pytest.raises(ConfigError, match='render_mode="rgb_array"; given: None'):
        render_frame(hammer)

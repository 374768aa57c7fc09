"""Episodes run for display: what they need, and what the callback receives."""

from collections.abc import Callable

import numpy as np
import pytest
from support.meshcat_recordings import object_paths

from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import ConfigError
from fleet_tools.policies.policy import StoredActions
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.studio.pictures.recording import (
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


@pytest.mark.parametrize("annotated", [True, False])
def test_an_episode_is_the_same_when_it_is_recorded(
    annotated: bool, make: Callable[..., ToolUseEnv]
) -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (3, 6)).astype(np.float32)
    alone = rollout(make(), StoredActions(actions), seed=3)
    env = make(render_mode="human")
    recorder = MeshcatRecorder(env, annotated=annotated)
    episode = recorder.record(PlannedEpisode("", StoredActions(actions), seed=3))
    np.testing.assert_array_equal(episode.digests, alone.digests)
    drawn = {path for path in object_paths(recorder.html()) if "/annotations/" in path}
    assert bool(drawn) == annotated


def test_another_render_mode_is_refused(hammer: ToolUseEnv) -> None:
    hammer.reset(seed=0)
    with pytest.raises(ConfigError, match='render_mode="human"; given: None'):
        MeshcatRecorder(hammer)
    with pytest.raises(ConfigError, match='render_mode="rgb_array"; given: None'):
        render_frame(hammer)

"""The tasks as LeRobot's environment hub hands them out."""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import VectorEnv
from support.processes import ROOT
from support.rendering import needs_gl
from support.repeated_results import action_of, result_of

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.evaluation.lerobot_hub import ProtocolScenes, make_env
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.evaluation.result import EpisodeResult
from fleet_tools.policies.lerobot_features import IMAGES, STATE, FeatureNames

HUB_FILE = ROOT / "examples/lerobot_hub/env.py"
SMALL = {"camera_size": [64, 48], "cloud_size": [40, 30]}

PROTOCOL = """
name: small
version: 1
description: Three scenes.
tasks: [hammer]
splits:
  train: {scenes: 2, first_seed: 4503599627370496}
  unseen_tools: {scenes: 1, first_seed: 4503599629370496}
"""


@pytest.fixture(name="small")
def _small(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(PROTOCOL)
    return str(path)


def only(task: str, n_envs: int = 1, use_async_envs: bool = False, **others: Any) -> VectorEnv:
    cfg = SimpleNamespace(task=task)
    return make_env(n_envs, use_async_envs, cfg, **others)[task][0]


def repeated(
    env: VectorEnv, episodes: list[EpisodeResult], numbers: list[int]
) -> list[tuple[bool, int]]:
    """Repeats actions of results as LeRobot's rollouts do; returns success and number of steps."""
    env.reset(seed=list(numbers), options={"lerobot_new_rollout": True})  # pyright: ignore[reportArgumentType]
    done, success, steps = (np.zeros(len(numbers), kind) for kind in (bool, bool, int))
    while not done.all():
        actions = [action_of(each, int(steps.max())) for each in episodes]
        _, _, terminated, truncated, info = env.step(np.stack(actions))
        now = info["final_info"]["is_success"] if "final_info" in info else False
        success |= now & ~done
        steps += ~done
        done |= terminated | truncated
    return [(bool(a), int(b)) for a, b in zip(success, steps, strict=True)]


# --- Success ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "split", "numbers", "use_async_envs"),
    [
        ("hammer", "train", [0], False),
        # The first has success for a moment, and ends without.
        pytest.param("spatula", "unseen_tools", [1, 0], False, marks=pytest.mark.slow),
        pytest.param("hammer", "train", [1, 2], True, marks=pytest.mark.slow),
    ],
)
def test_success_is_what_evaluate_counts(
    task: str, split: str, numbers: list[int], use_async_envs: bool
) -> None:
    expected = [result_of(task, number, split) for number in numbers]
    env = only(task, len(numbers), use_async_envs, split=split)
    try:
        found = repeated(env, expected, numbers)
    finally:
        env.close()
    assert found == [(each.success, each.steps) for each in expected]
    if task == "spatula":
        assert [each.success_once for each in expected] == [True, True] != [s for s, _ in found]


# --- Scenes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1000])  # LeRobot's own default is 1000
def test_consecutive_seeds_run_each_scene_once(small: str, first: int) -> None:
    env = ProtocolScenes("hammer", protocol=small)
    found = []
    for seed in (first, None, first + 2):  # without a seed, the next one
        env.reset(seed=seed)
        found.append(env.get_wrapper_attr("scene").digest())
    protocol = load_protocol(small)
    config = protocol.load_task("hammer")
    expected = {protocol.scene(config, trial).digest() for trial in protocol.trials()}
    assert len(expected) == 3 and set(found) == expected
    env.close()


def test_a_scene_does_not_depend_on_the_options_of_a_program(small: str) -> None:
    env = ProtocolScenes("hammer", protocol=small)
    first, _ = env.reset(seed=1)
    again, _ = env.reset(seed=1, options={"scene": "another", "lerobot_new_rollout": True})
    np.testing.assert_array_equal(first["agent_pos"], again["agent_pos"])
    env.close()


# --- Observations ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "env_kwargs",
    [
        {},
        {"obs_mode": "multitask_state"},
        pytest.param({"obs_mode": "rgbd", **SMALL}, marks=needs_gl),
    ],
    ids=lambda kwargs: kwargs.get("obs_mode", "state"),
)
def test_observations_hold_the_features_of_an_export(small: str, env_kwargs: dict) -> None:
    env = only("hammer", protocol=small, **env_kwargs)
    batch, _ = env.reset(seed=1)
    assert env.observation_space.contains(batch)
    env.close()
    protocol = load_protocol(small)
    plain = EnvSpec.of("hammer", **env_kwargs).make_tool_use()
    scene = protocol.scene(plain.task, protocol.trials()[1])
    observation, _ = plain.reset(options={"scene": scene})
    plain.close()
    expected = FeatureNames.of(plain.features).features_of_step(observation)
    named = {STATE: batch["agent_pos"]}
    named |= {IMAGES + camera: image for camera, image in batch.get("pixels", {}).items()}
    others = [name for name in batch if name not in ("agent_pos", "pixels")]
    named |= {f"observation.{name}": batch[name] for name in others}
    assert named.keys() == expected.keys()
    for name, value in named.items():
        np.testing.assert_array_equal(value[0], expected[name])


# --- Refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "match", "cfg", "kwargs"),
    [
        (ConfigError, "n_envs of at least 1; given: 0", None, {"n_envs": 0}),
        (UnknownNameError, "'hamer'.*hammer", SimpleNamespace(task="hamer"), {}),
        (UnknownNameError, "split", None, {"split": "test"}),
        (UnknownNameError, "level", None, {"level": "harder"}),
        (UnknownNameError, "obs_mod", None, {"obs_mod": "rgbd"}),
        (ConfigError, "no cameras", None, {"level": "cameras"}),
        (ConfigError, "active_stereo", None, {"level": "cameras", "sensors": "ideal"}),
    ],
)
def test_what_does_not_exist_is_named(error: type, match: str, cfg: Any, kwargs: dict) -> None:
    with pytest.raises(error, match=match):
        make_env(**{"cfg": cfg, **kwargs})


def test_the_file_of_a_repository_needs_no_lerobot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lerobot", None)
    made = runpy.run_path(str(HUB_FILE))["make_env"](n_envs=1, use_async_envs=False)
    assert set(made) == set(load_protocol("v1").tasks)
    for env in made.values():
        assert env[0].call("task_description")[0].endswith(".")
        env[0].close()

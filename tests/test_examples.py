"""Tasks in `examples/`, which consist of data alone: YAML, models and a page of text."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.processes import ROOT

from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.policies.policy import ZeroPolicy
from fleet_tools.registration import CUSTOM_ID
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.studio.checking.program import CheckOptions, make_report

EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/task.yaml"))
MODELS = sorted(path.parent for path in (ROOT / "examples").rglob("model.sdf"))
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]

Make = Callable[..., ToolUseEnv]

each_example = pytest.mark.parametrize("folder", EXAMPLES, ids=lambda path: path.name)
each_model = pytest.mark.parametrize("folder", MODELS, ids=lambda path: path.name)


# --- Every example --------------------------------------------------------------------------


def test_there_are_examples() -> None:
    assert EXAMPLES and MODELS


@each_example
def test_an_example_holds_only_data(folder: Path) -> None:
    kinds = Counter(path.suffix for path in folder.rglob("*.*"))
    assert kinds.keys() <= {".yaml", ".sdf", ".md", ".png", ".obj"}, kinds


@pytest.mark.parametrize("seed", SEEDS)
@each_example
def test_the_expert_succeeds(make: Make, folder: Path, seed: int) -> None:
    env = make(CUSTOM_ID, task=str(folder / "task.yaml"))
    assert rollout(env, ExpertPolicy(env), seed=seed).outcome == "success"


@pytest.mark.parametrize("seed", SEEDS[:2])
@each_example
def test_a_robot_without_motion_never_succeeds(make: Make, folder: Path, seed: int) -> None:
    env = make(CUSTOM_ID, task=str(folder / "task.yaml"))
    episode = rollout(env, ZeroPolicy(env), seed=seed)
    assert episode.outcome == "time_limit"
    moved = env.world_state().X_WO.translation() - env.scene.object_pose.translation_m
    assert np.linalg.norm(moved) < 1e-3


@each_model
def test_a_model_passes_the_check(folder: Path) -> None:
    report = make_report(CheckOptions(folder=folder, scenes=0))
    assert report["fine"] and not report["warnings"], report

"""Evaluations for tests: made-up episodes of a small protocol, and policies that fail."""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from hypothesis import strategies as st

from fleet_tools.envs.outcomes import (
    OBJECT_LOST,
    POLICY_ERROR,
    SIMULATION_ERROR,
    SUCCESS,
    TIME_LIMIT,
    WORKER_ERROR,
)
from fleet_tools.evaluation import result_folder
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.protocol import Protocol, Scenes, Trial, protocol_digest, task_digests
from fleet_tools.evaluation.result import EpisodeResult, Evaluation, Result, encode_actions
from fleet_tools.sim.splits import EVALUATION
from fleet_tools.storage.provenance import Machine

FIRST = EVALUATION.start

SMALL = Protocol(
    name="small",
    version=1,
    description="For tests.",
    tasks=("hammer", "knife"),
    splits={
        "train": Scenes(scenes=4, first_seed=FIRST),
        "unseen_tools": Scenes(scenes=3, first_seed=FIRST + 100),
    },
)
TRIALS = SMALL.trials()

OUTCOMES = st.sampled_from(
    [SUCCESS, TIME_LIMIT, OBJECT_LOST, POLICY_ERROR, WORKER_ERROR, SIMULATION_ERROR]
)


def an_episode(
    trial: Trial,
    outcome: str = SUCCESS,
    *,
    success_once: bool = False,
    scene_digest: str = "00",
    steps: int | None = None,
) -> EpisodeResult:
    """Returns a possible result of a trial; if the simulator failed, the policy had not acted."""
    if steps is None:
        steps = 0 if outcome == SIMULATION_ERROR else 2
    return EpisodeResult(
        **trial.model_dump(include={"task", "split", "index", "seed"}),
        outcome=outcome,
        success=outcome == SUCCESS,
        success_once=outcome == SUCCESS or success_once,
        steps=steps,
        scene_digest=scene_digest,
        state_digest="ab",
        actions=encode_actions(np.zeros((steps, 6))),
        seconds=1.0,
    )


def a_result(protocol: Protocol = SMALL, name: str = "somebody", **changes: Any) -> Result:
    """Returns the description of an evaluation, with some of its fields replaced."""
    digests = changes.get("task_digests") or task_digests(protocol)
    values: dict[str, Any] = {
        "protocol": protocol,
        "task_digests": digests,
        "protocol_digest": protocol_digest(protocol, digests),
        "policy": PolicyProvenance(
            name=name,
            kind="built_in",
            source="zero",
            content_digest=None,
            env_kwargs={},
            track="observations",
        ),
        "packages": {"fleet_tools": "0", "drake": "1.51.1"},
        "machine": Machine(system="", processor="", cores=1, memory_gib=1),
        "command": "evaluate",
    }
    return Result(**{**values, **changes})


def an_evaluation(
    outcomes: Sequence[str], name: str = "somebody", scene_digest: str = "00"
) -> Evaluation:
    """Returns an evaluation whose first trials have these outcomes."""
    episodes = [
        an_episode(trial, outcome, scene_digest=scene_digest)
        for trial, outcome in zip(TRIALS, outcomes, strict=False)
    ]
    return Evaluation(a_result(name=name), episodes)


def as_log(
    folder: Path, change: Callable[[list[dict[str, Any]]], object] = lambda lines: None
) -> Path:
    """Gives an evaluation a log in place of compressed episodes, and returns the log.

    Args:
        folder: Folder of the evaluation.
        change: Changes the lines of the log.
    """
    lines = [
        json.loads(each.to_json()) for each in result_folder.EVALUATION.read_records(folder)[0]
    ]
    change(lines)
    (folder / result_folder.PACKED).unlink(missing_ok=True)
    log = folder / result_folder.EPISODES
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return log


def without_times(episode: EpisodeResult) -> EpisodeResult:
    """Returns an episode without wall times, which differ when it is run again."""
    return episode.model_copy(update={"seconds": 0.0, "info": {}})


class FaultyPolicy:
    """A policy whose fault is chosen from `FAULTS` by the index of the scene in its split."""

    FAULTS = ("raise", "nan", "shape", "word", "exit", "none", "die", "hang")

    def __init__(self, env: gymnasium.Env) -> None:
        from fleet_tools.envs.tool_use_env import unwrap

        self._env = unwrap(env)
        self.info = {"when": object()}  # which is not JSON
        print("a policy's own output")

    def reset(self) -> None:
        pass

    def act(self, observation: dict[str, np.ndarray]) -> Any:
        match self.FAULTS[(self._env.scene.seed - FIRST) % len(self.FAULTS)]:
            case "raise":
                raise ZeroDivisionError("by zero")
            case "nan":
                return np.full(6, np.nan, np.float32)
            case "shape":
                return np.zeros(7, np.float32)
            case "word":
                return "forward"
            case "exit":
                sys.exit(0)
            case "die":
                os._exit(1)
            case "hang":
                time.sleep(1000)
        return np.zeros(6, np.float32)


def failing_factory(env: gymnasium.Env) -> Any:
    """A factory of policies that raises an error."""
    raise MemoryError("no room")


class PresumptuousPolicy:
    """A policy that chooses what only the protocol may choose."""

    env_kwargs = {"randomization": "off"}

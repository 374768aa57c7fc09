"""Evaluations for tests: made-up episodes of a small protocol, and policies that misbehave."""

import os
import sys
import time

import numpy as np
from hypothesis import strategies as st

from fleet_tools.envs.outcomes import (
    POLICY_ERROR,
    SIMULATION_ERROR,
    SUCCESS,
    TIME_LIMIT,
    WORKER_ERROR,
)
from fleet_tools.evaluation.protocol import Protocol, Scenes, protocol_digest, task_digests
from fleet_tools.evaluation.result import (
    EpisodeResult,
    Evaluation,
    Machine,
    PolicyIdentity,
    Result,
    encode_actions,
)
from fleet_tools.sim.seeds import EVALUATION

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

OUTCOMES = st.sampled_from([SUCCESS, TIME_LIMIT, POLICY_ERROR, WORKER_ERROR, SIMULATION_ERROR])


def an_episode(trial, outcome=SUCCESS, once=False, scene="00", steps=2):
    """What could have come of a trial."""
    return EpisodeResult(
        **trial.model_dump(include={"task", "split", "index", "seed"}),
        outcome=outcome,
        success=outcome == SUCCESS,
        success_once=outcome == SUCCESS or once,
        steps=steps,
        scene_digest=scene,
        state_digest="ab",
        actions=encode_actions(np.zeros((steps, 6))),
        seconds=1.0,
    )


def a_result(protocol=SMALL, name="somebody", **changes):
    """What an evaluation begins with."""
    digests = task_digests(protocol)
    return Result(
        **{
            "protocol": protocol,
            "task_digests": digests,
            "protocol_digest": protocol_digest(protocol, digests),
            "policy": PolicyIdentity(
                name=name, kind="built_in", source="zero", content_digest=None, environment={}
            ),
            "packages": {"fleet_tools": "0"},
            "machine": Machine(system="", processor="", cores=1, memory_gib=1),
            "command": "evaluate",
            **changes,
        }
    )


def an_evaluation(outcomes, name="somebody", **more):
    """An evaluation in which the first trials came out so."""
    episodes = [an_episode(t, o, **more) for t, o in zip(TRIALS, outcomes, strict=False)]
    return Evaluation(a_result(name=name), episodes)


class Misbehaving:
    """Does what the scene's place in its split says, by `DEEDS`."""

    DEEDS = ("raise", "nan", "shape", "word", "exit", "well", "die", "hang")

    def __init__(self, env):
        self._env = env.unwrapped
        self.info = {"when": object()}  # which is not JSON
        print("misbehaving")

    def reset(self):
        pass

    def act(self, observation):
        deed = self.DEEDS[(self._env.scene.seed - FIRST) % len(self.DEEDS)]
        match deed:
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


def unmade(env):
    """A factory that fails."""
    raise MemoryError("no room")


def greedy(env):
    """Chooses what the protocol decides."""


greedy.environment = {"randomization": "off"}

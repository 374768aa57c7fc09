"""Results as others submit them: made up, but of the scenes that a protocol really draws."""

from functools import cache
from pathlib import Path

import numpy as np

from fleet_tools.config.tasks import load_task
from fleet_tools.envs.outcomes import SUCCESS, TIME_LIMIT
from fleet_tools.evaluation.protocol import Protocol, Scenes, protocol_digest, task_digests
from fleet_tools.evaluation.result import (
    EPISODES,
    RESULT,
    EpisodeResult,
    Evaluation,
    Machine,
    PolicyIdentity,
    Result,
    encode_actions,
)
from fleet_tools.evaluation.scores import score
from fleet_tools.leaderboard.submissions import Submission
from fleet_tools.sim.scene import sample_scene
from fleet_tools.sim.seeds import EVALUATION

SMALL = Protocol(
    name="small",
    version=1,
    description="For tests.",
    tasks=("hammer", "knife"),
    splits={
        "train": Scenes(scenes=3, first_seed=EVALUATION.start),
        "unseen_tools": Scenes(scenes=2, first_seed=EVALUATION.start + 100),
    },
)


_task = cache(load_task)


@cache
def _scene(task, split, seed):
    return sample_scene(_task(task), seed, split=split, randomization="on")


@cache
def _digests(tasks):
    return task_digests(SMALL.model_copy(update={"tasks": tasks}))


def named(evaluation, name):
    """The same evaluation, of a method of another name."""
    policy = evaluation.result.policy.model_copy(update={"name": name})
    return Evaluation(evaluation.result.model_copy(update={"policy": policy}), evaluation.episodes)


def made_up(outcome_of, name="somebody", protocol=SMALL, tasks=None, training_seed=None):
    """An evaluation in which a trial came out as `outcome_of(trial)` says."""
    episodes = []
    for trial in protocol.trials():
        if tasks is None or trial.task in tasks:
            scene = _scene(trial.task, trial.split, trial.seed)
            outcome = outcome_of(trial)
            episode = EpisodeResult(
                **trial.model_dump(),
                outcome=outcome,
                success=outcome == SUCCESS,
                success_once=outcome == SUCCESS,
                steps=2,
                tool=scene.tool,
                object=scene.object,
                scene_digest=scene.digest(),
                state_digest="0123456789abcdef",
                actions=encode_actions(np.zeros((2, 6))),
                seconds=0.25,
            )
            episodes.append(episode)
    digests = _digests(protocol.tasks)
    result = Result(
        protocol=protocol,
        task_digests=digests,
        protocol_digest=protocol_digest(protocol, digests),
        policy=PolicyIdentity(
            name=name,
            kind="factory",
            source="their_module:factory",
            content_digest="ab" * 16,
            environment={},
            training_seed=training_seed,
        ),
        packages={"fleet_tools": "0.1.0"},
        machine=Machine(system="Linux", processor="some", cores=2, memory_gib=8),
        command="python -m fleet_tools.evaluate ...",
        complete=len(episodes) == len(protocol.trials()),
        scores=score(protocol, episodes),
    )
    return Evaluation(result, episodes)


def drawn(rate, seed=0, **more):
    """An evaluation whose trials succeed at a rate."""
    generator = np.random.default_rng(seed)
    return made_up(lambda trial: SUCCESS if generator.random() < rate else TIME_LIMIT, **more)


def submission(evaluation, folder=None):
    """The same, as if it had been read from a folder."""
    policy = evaluation.result.policy
    return Submission(folder or f"{policy.name}/{policy.training_seed}", evaluation)


def write(evaluation, folder: Path) -> Path:
    """Stores it as the program does, and returns the folder."""
    folder.mkdir(parents=True)
    (folder / RESULT).write_text(evaluation.result.model_dump_json(indent=2) + "\n")
    lines = [f"{episode.to_json()}\n" for episode in evaluation.episodes]
    (folder / EPISODES).write_text("".join(lines))
    return folder

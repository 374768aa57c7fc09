"""Results as others submit them: made up, but of the scenes that a protocol really draws."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from support import evaluated

from fleet_tools.config.tasks import TaskConfig, load_task
from fleet_tools.envs.outcomes import SUCCESS, TIME_LIMIT
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.protocol import Protocol, Scenes, Trial, task_digests
from fleet_tools.evaluation.result import EpisodeResult, Evaluation
from fleet_tools.evaluation.result_folder import EPISODES, RESULT
from fleet_tools.evaluation.scores import score
from fleet_tools.leaderboard.records import Certificate, StepVerdicts, Verification
from fleet_tools.leaderboard.standings import Overall, Standing
from fleet_tools.leaderboard.submissions import Submission
from fleet_tools.sim.scene import Scene, sample_scene
from fleet_tools.storage.provenance import Machine

SMALL = evaluated.SMALL.model_copy(
    update={
        "splits": {
            "train": Scenes(scenes=3, first_seed=evaluated.FIRST),
            "unseen_tools": Scenes(scenes=2, first_seed=evaluated.FIRST + 100),
        }
    }
)


@cache
def _task(name: str) -> TaskConfig:
    return load_task(name)


def _scene(protocol: Protocol, trial: Trial) -> Scene:
    if not protocol.has_any:
        return _plain_scene(trial.task, trial.split, trial.seed)
    return protocol.scene(_task(trial.task), trial)


@cache
def _plain_scene(task: str, split: str, seed: int) -> Scene:
    return sample_scene(_task(task), seed, split=split, randomization="on")


@cache
def _digests(tasks: tuple[str, ...]) -> dict[str, str]:
    return task_digests(SMALL.model_copy(update={"tasks": tasks}))


def renamed(evaluation: Evaluation, name: str | None = None, **changes: Any) -> Evaluation:
    """Returns the evaluation with another name of its policy, or with other facts about it."""
    update = changes if name is None else {"name": name, **changes}
    policy = evaluation.result.policy.model_copy(update=update)
    return Evaluation(evaluation.result.model_copy(update={"policy": policy}), evaluation.episodes)


def evaluation_with(
    outcome_of: Callable[[Trial], str],
    name: str = "somebody",
    protocol: Protocol = SMALL,
    tasks: Sequence[str] | None = None,
    training_seed: int | None = None,
    **env_kwargs: Any,
) -> Evaluation:
    """Returns an evaluation with a given outcome of each trial.

    Args:
        outcome_of: Returns the outcome of a trial.
        name: Name of the policy.
        protocol: The protocol.
        tasks: The covered tasks; all if None.
        training_seed: Seed of the policy's training run.
        env_kwargs: Keyword arguments of its environment; it observes the state if there are none.
    """
    episodes = [
        _episode(protocol, trial, outcome_of(trial))
        for trial in protocol.trials()
        if tasks is None or trial.task in tasks
    ]
    result = evaluated.a_result(
        protocol,
        task_digests=_digests(protocol.tasks),
        policy=PolicyProvenance(
            name=name,
            kind="factory",
            source="their_module:factory",
            content_digest="ab" * 16,
            env_kwargs=env_kwargs or {"obs_mode": "state"},
            training_seed=training_seed,
            track="observations",
        ),
        packages={"fleet_tools": "0.1.0", "drake": "1.51.1"},
        machine=Machine(system="Linux", processor="some", cores=2, memory_gib=8),
        command="python -m fleet_tools.evaluate ...",
        complete=len(episodes) == len(protocol.trials()),
        scores=score(protocol, episodes),
    )
    return Evaluation(result, episodes)


def _episode(protocol: Protocol, trial: Trial, outcome: str) -> EpisodeResult:
    scene = _scene(protocol, trial)
    models = {"tool": scene.tool, "object": scene.object, "seconds": 0.25}
    made = evaluated.an_episode(trial, outcome, scene_digest=scene.digest())
    return made.model_copy(update={"state_digest": "0123456789abcdef", **models})


def random_evaluation(rate: float, seed: int = 0, **others: Any) -> Evaluation:
    """Returns an evaluation whose trials succeed at a rate; see `evaluation_with`."""
    generator = np.random.default_rng(seed)
    return evaluation_with(
        lambda trial: SUCCESS if generator.random() < rate else TIME_LIMIT, **others
    )


def submission(
    evaluation: Evaluation, folder: str | None = None, same_outcome: int | None = 4
) -> Submission:
    """Returns the evaluation as if it had been read from a folder.

    Args:
        evaluation: The evaluation.
        folder: The folder.
        same_outcome: Number of episodes, of four that the host ran again, that ended alike; None if
            it ran none.
    """
    policy = evaluation.result.policy
    folder = folder or f"{policy.name}/{policy.training_seed}"
    found = None if same_outcome is None else verification(folder, same_outcome)
    return Submission(folder, evaluation, verification=found)


def verification(folder: str, same_outcome: int = 4, **changes: Any) -> Verification:
    """Returns a verification of four episodes, some of which ended alike, to the same bits."""
    values: dict[str, Any] = {
        "folder": folder,
        "content_digest": "ab" * 16,
        "by": "actions",
        "seed": 7,
        "requested": 4,
        "episodes": 4,
        "same": same_outcome,
        "same_outcome": same_outcome,
        "within": 0,
        "within_m": 0.001,
        "measured": 0,
        "differences": () if same_outcome == 4 else ("steps: 3 in the file, 4 here",),
        "machine": Machine(system="Linux", processor="ours", cores=2, memory_gib=8),
    }
    return Verification(**{**values, **changes})


def certificate(
    successes: Sequence[tuple[bool, ...]], folder: str = "ours", **changes: Any
) -> Certificate:
    """Returns verdicts at 4, 2 and 1 ms of episodes with the knife, of two splits in turn."""
    splits = [*SMALL.splits]
    values: dict[str, Any] = {
        "folder": folder,
        "content_digest": "ab" * 16,
        "steps_ms": (4.0, 2.0, 1.0),
        "episodes": tuple(
            StepVerdicts(task="knife", split=splits[k % 2], index=k, successes=each)
            for k, each in enumerate(successes)
        ),
        "machine": Machine(system="Linux", processor="ours", cores=2, memory_gib=8),
    }
    return Certificate(**{**values, **changes})


def overall(standing: Standing) -> Overall:
    """Returns the performance of a method that covers all tasks."""
    assert standing.overall is not None
    return standing.overall


def write(evaluation: Evaluation, folder: Path) -> Path:
    """Stores an evaluation as the program does, and returns the folder."""
    folder.mkdir(parents=True)
    (folder / RESULT).write_text(evaluation.result.model_dump_json(indent=2) + "\n")
    lines = [f"{episode.to_json()}\n" for episode in evaluation.episodes]
    (folder / EPISODES).write_text("".join(lines))
    return folder


class QuittingPolicy:
    """A policy that acts at random, and raises an error after a few steps.

    Args:
        env: The environment; it is not used.
    """

    STEPS = 5

    def __init__(self, env: gymnasium.Env) -> None:
        self.reset()

    def reset(self, seed: int = 0) -> None:
        self._generator = np.random.default_rng(seed)
        self._remaining = self.STEPS

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        if self._remaining == 0:
            raise RuntimeError("no more steps")
        self._remaining -= 1
        return self._generator.uniform(-1, 1, 6).astype(np.float32)

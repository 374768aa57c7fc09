"""Entries as others submit them: made up, but of the scenes that a protocol really draws."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from support import evaluated

from fleet_tools.config.tasks import TaskConfig, load_task
from fleet_tools.envs.outcomes import SUCCESS, TIME_LIMIT
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.protocol import Protocol, Scenes, Trial, task_digests
from fleet_tools.evaluation.result import EpisodeResult, Evaluation, encode_actions
from fleet_tools.evaluation.result_folder import EPISODES, RESULT
from fleet_tools.evaluation.scores import score
from fleet_tools.leaderboard.entries import Entry, read_entry
from fleet_tools.leaderboard.host import (
    HOST,
    VERIFICATION,
    Verification,
    evaluation_digest,
    evaluation_folder,
    key,
    now,
    read_round,
)
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
    actions: str = "",
    **env_kwargs: Any,
) -> Evaluation:
    """Returns an evaluation with a given outcome of each trial.

    Args:
        outcome_of: Returns the outcome of a trial.
        name: Name of the policy.
        protocol: The protocol.
        tasks: The covered tasks; all if None.
        training_seed: Seed of the policy's training run.
        actions: Name of the method that acts; the same as the name if empty.
        env_kwargs: Keyword arguments of its environment; it observes the state if there are none.
    """
    episodes = [
        _episode(protocol, trial, outcome_of(trial), actions or name)
        for trial in protocol.trials()
        if tasks is None or trial.task in tasks
    ]
    result = evaluated.a_result(
        protocol,
        task_digests=_digests(protocol.tasks),
        policy=PolicyProvenance(
            name=name,
            kind="checkpoint",
            source="it.safetensors",
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


def _episode(protocol: Protocol, trial: Trial, outcome: str, actor: str) -> EpisodeResult:
    scene = _scene(protocol, trial)
    generator = np.random.default_rng([trial.seed, *f"{actor} {trial.task}".encode()])
    actions = encode_actions(generator.uniform(-1, 1, (2, 6)))
    models = {"tool": scene.tool, "object": scene.object, "seconds": 0.25, "actions": actions}
    made = evaluated.an_episode(trial, outcome, scene_digest=scene.digest())
    return made.model_copy(update={"state_digest": "0123456789abcdef", **models})


def random_evaluation(rate: float, seed: int = 0, **others: Any) -> Evaluation:
    """Returns an evaluation whose trials succeed at a rate; see `evaluation_with`."""
    generator = np.random.default_rng(seed)
    return evaluation_with(
        lambda trial: SUCCESS if generator.random() < rate else TIME_LIMIT, **others
    )


def write(evaluation: Evaluation, folder: Path) -> Path:
    """Stores an evaluation as the program does before it packs it, and returns the folder."""
    folder.mkdir(parents=True)
    (folder / RESULT).write_text(evaluation.result.model_dump_json(indent=2) + "\n")
    lines = [f"{episode.to_json()}\n" for episode in evaluation.episodes]
    (folder / EPISODES).write_text("".join(lines))
    return folder


def write_entry(
    root: Path, name: str, *policies: dict[str, Any], content: bytes | None = None, **others: Any
) -> Entry:
    """Stores an entry in the folder of a leaderboard, and returns it.

    Args:
        root: Folder of the leaderboard.
        name: Name of the entry.
        policies: Its policies; None for one checkpoint for all tasks.
        content: Content of the checkpoint.
        others: Other keys of `entry.yaml`.
    """
    folder = root / "entries" / name
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "it.safetensors").write_bytes(content or name.encode())
    file = {
        "name": name,
        "title": f"The method {name}",
        "description": "It acts.",
        "track": "keypoints",
        "policies": [*policies] or [{"policy": "checkpoints/it.safetensors"}],
        **others,
    }
    (folder / "entry.yaml").write_text(json.dumps(file))
    return read_entry(folder)


def host_ran(root: Path, entry: Entry, evaluations: Sequence[Evaluation], **facts: Any) -> None:
    """Stores made-up evaluations of an entry's policies as if the host had run these.

    Args:
        root: Folder of the leaderboard, which has a round.
        entry: The entry.
        evaluations: One for each policy, in the scenes of the round.
        facts: Other fields of the verification.
    """
    round_ = read_round(root)
    assert round_ is not None
    policies = entry.file.policies
    received = {key(entry, policy): now() for policy in policies} | round_.received
    round_.replaced(root, received={**round_.received, **received})
    pairs = [*zip(policies, evaluations, strict=True)]
    for policy, evaluation in pairs:
        write(evaluation, evaluation_folder(root, entry, policy))
    values: dict[str, Any] = {
        "name": entry.name,
        "submission": entry.digest,
        "verified": now(),
        "commitment": round_.commitment,
        "evaluations": {entry.digests[p]: evaluation_digest(e) for p, e in pairs},
        "packages": {"drake": "1.51.1"},
    }
    record = Verification(**{**values, **facts}).sealed(round_.seed)
    path = root / HOST / entry.name / VERIFICATION
    path.parent.mkdir(exist_ok=True)
    path.write_text(record.to_json())

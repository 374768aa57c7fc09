"""Stored episodes for comparisons of Drake's releases: made by one, run again by each.

    release_episodes.py make FOLDER EPISODES CLONE...   makes them, where they are not there yet
    release_episodes.py replay FOLDER                   runs those again that stdin names

It is what `drake_versions.py` runs in each environment.
"""

import hashlib
import math
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from scaffold import answering
from success import pushed

from fleet_tools.dataset import episode_file
from fleet_tools.dataset.attempts import attempt_record, scene_seed
from fleet_tools.dataset.dataset_folder import Dataset, DatasetWriter
from fleet_tools.dataset.header import describe
from fleet_tools.dataset.replays import Replay
from fleet_tools.dataset.stored_episode import AttemptRecord
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.evaluation.result import decode_actions
from fleet_tools.evaluation.trial import trial_scene
from fleet_tools.policies.policy import Policy, StoredActions
from fleet_tools.policies.sources import find_policy
from fleet_tools.rollouts.episode import Episode
from fleet_tools.rollouts.rollout import attempt, rollout
from fleet_tools.sim.scene import Scene, sample_scene
from fleet_tools.storage.provenance import installed_packages

POLICIES = ("expert", "noisy_expert", "random")
CLONES = "clones"
_PUSHED_EVERY = 3
"""In one of so many episodes the object is moved; clones' actions do not know of it, and the arm
stays where it is after the last one."""


def folders(root: Path) -> list[Path]:
    """Returns the datasets of the protocol's tasks and all kinds of actions, by task."""
    tasks = load_protocol(PROTOCOL).tasks
    return [root / task / kind for task in tasks for kind in (*POLICIES, CLONES)]


def episode_names(root: Path) -> list[str]:
    """Returns the names of all episodes, by task, such as "hammer/expert 3"."""
    return [
        f"{folder.relative_to(root)} {record.attempt}"
        for folder in folders(root)
        for record in Dataset(folder).stored()
    ]


def digest(root: Path) -> str:
    """Returns a hash of all episodes."""
    of_all = hashlib.blake2b(digest_size=8)
    for folder in folders(root):
        for record in Dataset(folder).stored():
            of_all.update(str(record.file_digest).encode())
    return of_all.hexdigest()


def make(root: Path, episodes: int, clones: list[Path]) -> None:
    """Makes the episodes that are not there yet, so many of each task and kind of actions.

    Args:
        root: Folder of all episodes.
        episodes: Number of each task and kind.
        clones: Folders of results whose actions are those of clones.

    Raises:
        DatasetError: The folder holds episodes of other versions.
    """
    for folder in folders(root):
        spec = EnvSpec.of(folder.parent.name, obs_mode="state", split="all")
        with closing(spec.make()) as env:
            header = describe(
                env,
                spec,
                policy=folder.name,
                seed=folders(root).index(folder),
                keep_failures=True,
            )
            with DatasetWriter(folder, header) as writer:
                cases = _cases(unwrap(env), header.seed, folder.name, episodes, clones)
                for number, (scene, policy) in enumerate(cases):
                    if number < len(writer.records):
                        continue
                    scene = pushed(scene) if number % _PUSHED_EVERY == 2 else scene
                    made = rollout(env, policy, scene=scene)
                    result = attempt(lambda made=made: made)
                    record = attempt_record(header.seed, number, result)
                    record = record.model_copy(update={"seed": scene.seed})
                    writer.add(record, episode_file.to_bytes(made, number))


def _cases(
    env: ToolUseEnv, seed: int, kind: str, episodes: int, clones: list[Path]
) -> Iterator[tuple[Scene, Policy]]:
    """Yields scenes and who acts there."""
    if kind != CLONES:
        for seed_of_scene in (scene_seed(seed, number) for number in range(episodes)):
            policy = find_policy(kind).make(env, seed_of_scene)
            yield sample_scene(env.task, seed_of_scene, split=env.split), policy
        return
    from processor_replays import draw

    drawn = draw(clones, episodes)
    protocol = load_protocol(PROTOCOL)
    of_task = [each for each in drawn if each.task == env.task.name]
    # One of each result in turn, which are drawn one after the other.
    in_turn = sorted(range(len(of_task)), key=lambda k: (k % episodes, k))[:episodes]
    for chosen in (of_task[k] for k in in_turn):
        actions = decode_actions(chosen.actions)
        rest = np.zeros((env.task.max_episode_steps - len(actions), *actions.shape[1:]), np.float32)
        yield trial_scene(env, protocol, chosen), StoredActions(np.concatenate([actions, rest]))


class _Clock(gymnasium.Wrapper):
    """Adds up the processor time of steps, s."""

    seconds = 0.0

    def step(self, action: Any) -> Any:
        started = time.process_time()
        try:
            return super().step(action)
        finally:
            self.seconds += time.process_time() - started


def replay(root: Path, answer: Callable[[Any], None]) -> None:
    """Answers with packages, then runs the episodes that lines name: "hammer/expert 3"."""
    env: ToolUseEnv | None = None

    def run(dataset: Dataset, record: AttemptRecord) -> dict[str, Any]:
        nonlocal env
        if env is None or env.task_name != dataset.header.task.name:
            if env is not None:
                env.close()
            env = unwrap(dataset.header.make_env())
        stored, clock = dataset.episode(record.attempt), _Clock(env)
        again = rollout(clock, StoredActions(stored.actions), scene=stored.scene)
        found = Replay.of(record, stored, again)
        return {
            "identical": found.identical,
            "same_outcome": found.same_outcome,
            "distance_m": found.distance_m,
            **_forces(stored, again),
            "step_s": clock.seconds / len(again),
        }

    first = Dataset(folders(root)[0])
    run(first, first.stored()[0])  # what is compiled or loaded once is not timed
    answer({"python": platform.python_version(), **installed_packages()})
    for line in sys.stdin:
        name, number = line.split()
        dataset = Dataset(root / name)
        answer(run(dataset, next(r for r in dataset.stored() if r.attempt == int(number))))


def _forces(stored: Episode, again: Episode) -> dict[str, float]:
    """Returns how forces on the end effector differ, over all steps that both episodes have."""
    rows = min(len(stored), len(again)) + 1
    one, other = (
        episode.observations["end_effector_wrench"][:rows, 3:].astype(np.float64)
        for episode in (stored, again)
    )
    change = np.linalg.norm(one - other, axis=1)
    return {
        "force_change_N": float(change.max()),
        "force_change_squares": math.fsum(change**2),
        "force_squares": math.fsum((one**2).ravel()),
    }


if __name__ == "__main__":
    command, folder, *rest = sys.argv[1:]
    with answering() as answer:
        if command == "make":
            make(Path(folder), int(rest[0]), [Path(each) for each in rest[1:]])
            answer(digest(Path(folder)))
        else:
            replay(Path(folder), answer)

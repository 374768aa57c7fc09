"""Rollouts of policies in scenes that are not used for training."""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import TypedDict  # pydantic reads typing's from Python 3.12 on

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint
from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.header import Header
from fleet_tools.envs.outcomes import SIMULATION_ERROR, SUCCESS, WORKER_ERROR
from fleet_tools.errors import SimulationError
from fleet_tools.parallel import workers
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.splits import VALIDATION

# Drake is imported with the environment.
if TYPE_CHECKING:
    from fleet_tools.baselines.policies.policy import NetworkPolicy
    from fleet_tools.envs.recorded_env import RecordedEnv


class TaskSuccesses(TypedDict):
    """Results of rollouts in a task, as plain JSON data.

    Attributes:
        episodes: Number of episodes.
        successes: Number of successful episodes.
        outcomes: Number of episodes by outcome.
        solved: Indices of the scenes of the successes.
    """

    episodes: int
    successes: int
    outcomes: dict[str, int]
    solved: list[int]


class SuccessMeasure(Protocol):
    """Runs policies, and counts their successes."""

    def __call__(
        self, checkpoint: Checkpoint, /, tasks: Collection[str] | None = None
    ) -> dict[str, TaskSuccesses] | None:
        """Returns successes by setting; None if policies are not run.

        Args:
            checkpoint: The policy.
            tasks: Names of the settings, see `Header.setting`; None for all.
        """
        ...


RolloutJob = tuple[str, int]
"""Name of a setting, and seed of a scene."""

_WITHOUT = " without "
"""Between the name of a setting and of the entry that is hidden from a policy there."""


def make_success_measure(
    folders: Sequence[str | Path],
    episodes: int,
    blueprint: Blueprint,
    worker_count: int | None = 0,
    *,
    first: int = 0,
    detector: str | None = None,
) -> SuccessMeasure:
    """Returns a function that evaluates policies, after checking that they can act.

    Args:
        folders: Folders of the policies' datasets.
        episodes: Number of episodes in each environment; 0 for a function that returns None.
        blueprint: Blueprint of the policies.
        worker_count: See `count_successes`.
        first: See `count_successes`.
        detector: Checkpoint of a keypoint detector, which then gives policies their keypoints; None
            for none.

    Raises:
        LayoutError: The policies cannot act in the environments of the datasets, or on the
            detector's outputs.
        FleetToolsError: A dataset or the detector cannot be read, or an environment cannot be made
            here.
    """
    if episodes == 0:
        return lambda checkpoint, /, tasks=None: None
    headers = [Dataset(folder).header for folder in folders]
    count = partial(count_successes, headers, episodes, worker_count=worker_count, first=first)
    if detector is None:
        _require_envs(headers, blueprint)
        return count

    from fleet_tools.baselines.policies.keypoint_detector import attached, behind

    eyes = load_checkpoint(Path(detector))
    _require_envs(headers, behind(blueprint, eyes.blueprint))
    return lambda checkpoint, /, tasks=None: count(attached(checkpoint, eyes), tasks)


def _require_envs(headers: Sequence[Header], blueprint: Blueprint) -> None:
    for env in make_envs(headers, blueprint).values():
        env.close()


def count_successes(
    headers: Sequence[Header],
    episodes: int,
    checkpoint: Checkpoint,
    /,
    tasks: Collection[str] | None = None,
    *,
    worker_count: int | None = 0,
    timeout_s: float = 300.0,
    first: int = 0,
) -> dict[str, TaskSuccesses]:
    """Runs a policy in scenes of `splits.VALIDATION`, the same each time.

    A policy with optional entries runs once with all, and once without each of these.

    Args:
        headers: Headers of the policy's datasets, one environment for each task and robot.
        episodes: Number of episodes in each environment.
        checkpoint: The policy.
        tasks: Names of the settings in which it runs, see `Header.setting`; None for all.
        worker_count: Number of worker processes, see `workers.run`; 0 runs it in this one.
        timeout_s: Time limit of an episode.
        first: Number of the first scene.

    Returns:
        Successes by the name of the setting; without an entry, it is for example "hammer@ur5e
        without end_effector_wrench".

    Raises:
        LayoutError: The policy cannot act in these environments.
        FleetToolsError: They cannot be made here.
    """
    scenes = VALIDATION[first : first + episodes]
    if tasks is not None:
        headers = [header for header in headers if header.setting in tasks]
    ways = ("", *(f"{_WITHOUT}{name}" for name in checkpoint.blueprint.optional))
    outcomes: dict[str, dict[int, str]] = {
        header.setting + way: {} for header in headers for way in ways
    }
    jobs = ((task, seed) for task in outcomes for seed in scenes)
    make_work = partial(make_rollouts, tuple(headers), checkpoint)
    results = workers.run(
        lambda: next(jobs, None), make_work, count=worker_count, timeout_s=timeout_s
    )
    with contextlib.closing(results):
        for (task, seed), result in results:
            outcome = WORKER_ERROR if isinstance(result, workers.LostJob) else result
            outcomes[task][scenes.index(seed)] = outcome
    return {task: _successes(by_scene) for task, by_scene in outcomes.items()}


def _successes(outcomes: dict[int, str]) -> TaskSuccesses:
    solved = sorted(scene for scene, outcome in outcomes.items() if outcome == SUCCESS)
    return {
        "episodes": len(outcomes),
        "successes": len(solved),
        "outcomes": dict(sorted(Counter(outcomes.values()).items())),
        "solved": solved,
    }


def make_rollouts(headers: Sequence[Header], checkpoint: Checkpoint) -> Callable[[RolloutJob], str]:
    """Returns a function that runs an episode, and returns its outcome.

    Raises:
        LayoutError, FleetToolsError: See `count_successes`.
    """
    from fleet_tools.baselines.policies.policy import NetworkPolicy

    policy, envs = NetworkPolicy(checkpoint), make_envs(headers, checkpoint.blueprint)

    def run(job: RolloutJob) -> str:
        setting, _, lacks = job[0].partition(_WITHOUT)
        try:
            return rollout(envs[setting], _Without(policy, lacks), seed=job[1]).outcome
        except SimulationError:  # the scene cannot even begin
            return SIMULATION_ERROR

    return run


class _Without:
    """A policy on a robot that lacks an entry of the observation; none if its name is empty."""

    def __init__(self, policy: "NetworkPolicy", lacks: str) -> None:
        self._policy, self._lacks = policy, lacks

    def reset(self, seed: int = 0) -> None:
        self._policy.reset(seed)

    def act(self, observation: Mapping[str, Any]) -> Any:
        seen = {name: each for name, each in observation.items() if name != self._lacks}
        return self._policy.act(seen)


def make_envs(headers: Iterable[Header], blueprint: Blueprint) -> dict[str, "RecordedEnv"]:
    """Makes the environments of datasets, one for each task and robot, by `Header.setting`.

    They give the entries of the datasets. A policy with a keypoint detector gets the detector's
    training inputs instead.

    Raises:
        LayoutError: A policy of the blueprint cannot act in them.
        FleetToolsError: They cannot be made here.
    """
    envs: dict[str, RecordedEnv] = {}
    others: dict[str, Any] = {} if blueprint.detector is None else blueprint.env_kwargs
    for header in headers:
        if header.setting not in envs:
            envs[header.setting] = env = header.make_env(**others)
            blueprint.require_environment(env)
    return envs


def format_successes(rollouts: dict[str, TaskSuccesses]) -> str:
    """Returns the successes of all tasks in a few words, such as "12/20 9/20"."""
    return " ".join(f"{each['successes']}/{each['episodes']}" for each in rollouts.values())

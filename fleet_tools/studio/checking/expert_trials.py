"""The expert's trial of a model: a few episodes, and the stages of their failures."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.envs.outcomes import SIMULATION_ERROR, SUCCESS
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import ConfigError, FleetToolsError
from fleet_tools.policies.policy import EXPLANATION, Policy
from fleet_tools.policies.sources import find_policy
from fleet_tools.rollouts.rollout import attempt, rollout
from fleet_tools.sim.catalog import Model

if TYPE_CHECKING:  # Drake is imported with the environment
    from fleet_tools.envs.tool_use_env import ToolUseEnv

LOADING = "loading"
"""Stage of a scene that cannot begin."""

SIMULATION = "simulation"
"""Stage of an episode that ends by an error of the simulator."""


@dataclass(frozen=True)
class ExpertTrial:
    """One episode of the expert with a model.

    Attributes:
        task: Name of the task.
        partner: The object that a tool met, or the tool that met an object; None if unknown.
        seed: Seed of the scene.
        outcome: Its outcome, see `fleet_tools.envs.outcomes`; "loading" if it could not begin.
        stage: Where it failed; None after a success.
        why: Error message, or the expert's explanation.
    """

    task: str
    partner: str | None
    seed: int
    outcome: str
    stage: str | None = None
    why: str | None = None


def tasks_of(model: Model, task: str | None) -> list[str]:
    """Returns the tasks in which a model is tried: the given one, else the package's of its family.

    Raises:
        ConfigError: The task uses other families.
        FleetToolsError: There is no such task.
    """
    kind, family = model.labels.kind, model.labels.family
    if task is None:
        return [
            name for name in task_names() if getattr(load_task(name), f"{kind}_family") == family
        ]
    needed = getattr(load_task(task), f"{kind}_family")
    if needed != family:
        raise ConfigError(
            f"The task {task} is for a {kind} of the family {needed}; {model.file.parent} is of "
            f"the family {family}."
        )
    return [task]


def try_model(model: Model, task: str, seeds: Iterable[int]) -> Iterator[ExpertTrial]:
    """Lets the expert use a model, with other models of the task, drawn from all; yields trials."""
    kind, folder = model.labels.kind, str(model.file.parent)
    partner = "object" if kind == "tool" else "tool"
    try:
        env = EnvSpec.of(task=task, split="all", **{kind: folder}).make_tool_use()
    except FleetToolsError as error:
        yield from (ExpertTrial(task, None, seed, LOADING, LOADING, str(error)) for seed in seeds)
        return
    expert = find_policy("expert").make(env)
    try:
        yield from (_trial(env, expert, task, partner, seed) for seed in seeds)
    finally:
        env.close()


def _trial(env: "ToolUseEnv", expert: Policy, task: str, partner: str, seed: int) -> ExpertTrial:
    try:
        result = attempt(lambda: rollout(env, expert, seed=seed))
    except FleetToolsError as error:
        return ExpertTrial(task, None, seed, LOADING, LOADING, str(error))
    episode = result.episode
    if episode is None:  # an error of Drake's before or during the episode
        stage = LOADING if result.outcome == SIMULATION_ERROR else SIMULATION
        return ExpertTrial(task, None, seed, result.outcome, stage, result.error)
    met = PurePath(getattr(episode.scene, partner)).name
    why = episode.error or episode.info.get(EXPLANATION)
    return ExpertTrial(
        task, met, seed, episode.outcome, failing_stage(episode.outcome, episode.info), why
    )


def failing_stage(outcome: str, info: Mapping[str, Any]) -> str | None:
    """Returns the stage at which an expert's episode failed; None after a success.

    It is "simulation", "planning", or "expectation at keyframe K" for the keyframe at which most
    attempts failed. Where no attempt failed before the end, it is the stage in which it ended:
    "approach", "actuation", "motion to keyframe K" or "retreat".
    """
    if outcome == SUCCESS:
        return None
    if outcome == SIMULATION_ERROR:
        return SIMULATION
    failed = Counter(attempt["keyframe"] for attempt in info["failed_attempts"])
    if failed:
        return f"expectation at keyframe {failed.most_common(1)[0][0]}"
    stage = info["stage"]
    if stage.startswith("before"):
        return "approach"
    return f"motion to keyframe {stage}" if stage.startswith("after") else stage


def counted(trials: Sequence[ExpertTrial]) -> dict[str, dict[str, Any]]:
    """Returns the number of failed trials by stage, each with an example."""
    stages: dict[str, dict[str, Any]] = {}
    for trial in trials:
        if trial.stage is not None:
            names = ("partner", "seed", "outcome", "why")
            example = {name: getattr(trial, name) for name in names}
            stage = stages.setdefault(trial.stage, {"count": 0, "example": example})
            stage["count"] += 1
    return dict(sorted(stages.items(), key=lambda item: -item[1]["count"]))

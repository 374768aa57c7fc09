"""Observes stored episodes again in another mode, from the same scenes and actions.

Episodes run again bit for bit, so what is stored is what a collection in that mode would have
stored, as long as its policy acts alike whatever is observed, as experts do.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleet_tools.config.values import parse
from fleet_tools.dataset import episode_file
from fleet_tools.dataset.attempts import require_versions
from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.header import Header
from fleet_tools.dataset.stored_episode import AttemptRecord
from fleet_tools.envs.array_spec import describe_observation
from fleet_tools.envs.observation_modes import observation_arguments
from fleet_tools.envs.outcomes import DISCARDED, NOT_REPRODUCIBLE, POLICY_ERROR
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import ConfigError, require_name
from fleet_tools.policies.policy import StoredActions
from fleet_tools.registration import TOOL_USE
from fleet_tools.rollouts.episode import Episode, first_difference
from fleet_tools.rollouts.rollout import Attempt, attempt, rollout


def describe_reobservation(source: Header, observed: Mapping[str, Any]) -> Header:
    """Describes the dataset that a stored one becomes, after checking that it can be made here.

    Args:
        source: Header of the stored dataset.
        observed: Keyword arguments of the environment that affect observations, `obs_mode` among
            them; the stored ones do not count.

    Raises:
        ConfigError: It is a dataset of another arena, or an argument is not valid.
        UnknownNameError: An argument does not affect observations.
        DatasetError: It was made with other versions, with functions that are not trusted, or with
            models that are missing or damaged.
    """
    if source.env_spec.arena is not TOOL_USE:
        raise ConfigError(
            "Only episodes of tool-use environments can be observed again in other modes; this "
            f"dataset has {source.task.name!r}, a task of {source.env_spec.arena.name}."
        )
    affecting = observation_arguments()
    for name in observed:
        require_name("argument of the environment that affects observations", name, affecting)
    require_versions(source)
    others = {k: v for k, v in source.env_spec.kwargs.items() if k not in affecting}
    facts = {"id": source.env_spec.id, "kwargs": {**others, **observed}}
    spec = parse(EnvSpec, facts, "The specification of the environment")
    header = source.model_copy(update={"env_spec": spec})
    env = header.make_env()
    try:
        return header.model_copy(update={"observation": describe_observation(env)})
    finally:
        env.close()


def make_reobservations(
    header: Header, source: Path
) -> Callable[[int], tuple[AttemptRecord, bytes | None]]:
    """Returns a function that observes stored attempts by number.

    Args:
        header: See `describe_reobservation`.
        source: Folder of the stored dataset, which stays as it is.

    Returns:
        A function from a number to the attempt's record, and its episode's file if there is one. An
        episode that takes another course is "not_reproducible" and has no file. Of an attempt whose
        episode is not stored, there is the record alone.

    Raises:
        DatasetError: Other versions are installed here; or, as does the function, the stored
            dataset or an episode is missing or damaged.
        FleetToolsError: The environment cannot be made here.
    """
    require_versions(header)
    dataset, env = Dataset(source), header.make_env()
    records = {record.attempt: record for record in dataset.manifest()}

    def make(number: int) -> tuple[AttemptRecord, bytes | None]:
        record = records[number].model_copy(update={"file": None, "file_digest": None})
        if records[number].file is None:
            return record, None
        stored = dataset.episode(number)
        result = attempt(lambda: rollout(env, StoredActions(stored.actions), scene=stored.scene))
        record = record.model_copy(update={"seconds": result.seconds})
        if error := _difference(stored, result):
            failed = {"outcome": NOT_REPRODUCIBLE, "success": False, "error": error}
            return record.model_copy(update=failed), None
        assert result.episode is not None
        episode = replace(result.episode, outcome=stored.outcome, error=stored.error)
        return record, episode_file.to_bytes(episode, number, header.images)

    return make


def _difference(stored: Episode, result: Attempt) -> str | None:
    """Returns how a stored episode took another course; None if it did not.

    States are compared by their digests, and what follows from them; observations are not.
    """
    if result.episode is None:
        return f"run again, it ended as {result.outcome}: {result.error}"
    again = result.episode
    if stored.outcome in (POLICY_ERROR, DISCARDED, NOT_REPRODUCIBLE):  # not of the environment
        again = replace(again, outcome=stored.outcome)
    difference = first_difference(replace(stored, observations={}), replace(again, observations={}))
    if difference is None:
        return None
    return f"run again, it differs from step {difference.step} on: {', '.join(difference.what)}"

"""The files of an evaluation: `result.json` describes it, `episodes.jsonl` holds its episodes."""

from pathlib import Path
from typing import Any

from fleet_tools.errors import ResultError
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.result import SCHEMA_VERSION, EpisodeResult, Evaluation, Result
from fleet_tools.policies.sources import current_name
from fleet_tools.storage.record_folder import FolderKind, rename_keys

RESULT = "result.json"
EPISODES = "episodes.jsonl"


def upgrade_from_1(data: dict[str, Any]) -> dict[str, Any]:
    """Brings a result of schema version 1 to version 2, which renames some entries."""
    upgraded = {**data, "schema_version": 2}
    if isinstance(data.get("policy"), dict):
        policy = rename_keys(data["policy"], {"environment": "env_kwargs"})
        if isinstance(policy.get("source"), str):
            policy["source"] = current_name(policy["source"])
        upgraded["policy"] = policy
    if "scores" in data:
        upgraded["scores"] = _with_renamed_rates(data["scores"])
    return upgraded


EVALUATION: FolderKind[Result, EpisodeResult] = FolderKind(
    what="an evaluation",
    maker="python -m fleet_tools.evaluate",
    error=ResultError,
    document=Result,
    document_name=RESULT,
    version=SCHEMA_VERSION,
    record=EpisodeResult,
    log_name=EPISODES,
    upgrades={1: upgrade_from_1},
)


def load_evaluation(folder: str | Path) -> Evaluation:
    """Reads an evaluation, and checks that its parts belong together.

    Args:
        folder: Folder of the evaluation.

    Raises:
        ResultError: It is missing, damaged, of an unknown version, or its episodes are not those
            of its protocol.
    """
    folder = Path(folder)
    result = EVALUATION.read_document(folder).lying_in(folder)
    episodes, _ = EVALUATION.read_records(folder)
    return Evaluation(result, in_order(result.protocol, episodes, folder / EPISODES))


def in_order(protocol: Protocol, episodes: list[EpisodeResult], file: Path) -> list[EpisodeResult]:
    """Returns episodes in their protocol's order.

    Args:
        protocol: The protocol.
        episodes: Results of all or some of its trials.
        file: File of the episodes, for the error message.

    Raises:
        ResultError: An episode is not of the protocol, has another seed, or occurs twice.
    """
    seeds = {trial.key: trial.seed for trial in protocol.trials()}
    by_key: dict[tuple[str, str, int], EpisodeResult] = {}
    for episode in episodes:
        which = f"{file}: episode {episode.index} of {episode.task}, {episode.split}"
        if episode.key not in seeds:
            raise ResultError(f"{which}, is not in the protocol {protocol.title!r}.")
        if episode.seed != seeds[episode.key]:
            raise ResultError(
                f"{which}, has the seed {episode.seed}; in the protocol it is {seeds[episode.key]}."
            )
        if episode.key in by_key:
            raise ResultError(f"{which}, occurs twice.")
        by_key[episode.key] = episode
    return [by_key[key] for key in seeds if key in by_key]


def _with_renamed_rates(scores: Any) -> Any:
    if not isinstance(scores, dict):
        return scores
    if "simulation_errors" in scores:  # a score
        return rename_keys(scores, {"end": "success", "any_time": "success_once"})
    return {key: _with_renamed_rates(value) for key, value in scores.items()}

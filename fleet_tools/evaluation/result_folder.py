"""The folder of an evaluation: `result.json` describes it, `episodes.parquet` holds its episodes.

While it runs, `episodes.jsonl` has a line for each episode as it ends, so that those that ended
stay, whatever happens to the process. When it ends, they move into `episodes.parquet`.
"""

from pathlib import Path

from fleet_tools.errors import ResultError
from fleet_tools.evaluation.packed_episodes import read_episodes, write_episodes
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.result import (
    SCHEMA_VERSION,
    AnytimeVerdict,
    EpisodeResult,
    Evaluation,
    Result,
)
from fleet_tools.evaluation.scores import score
from fleet_tools.storage.record_folder import RecordKind, RecordWriter

RESULT = "result.json"
EPISODES = "episodes.jsonl"
PACKED = "episodes.parquet"

EVALUATION: RecordKind[Result, EpisodeResult] = RecordKind(
    what="an evaluation",
    maker="python -m fleet_tools.evaluate",
    error=ResultError,
    document=Result,
    document_name=RESULT,
    version=SCHEMA_VERSION,
    record=EpisodeResult,
    log_name=EPISODES,
    packed_name=PACKED,
    read_packed=read_episodes,
    write_packed=write_episodes,
)


def load_evaluation(folder: str | Path) -> Evaluation:
    """Reads an evaluation, and checks that its parts belong together.

    Args:
        folder: Folder of the evaluation.

    Raises:
        ResultError: It is missing, damaged, of an unknown version, or its episodes are not its
            protocol's.
    """
    folder = Path(folder)
    result = EVALUATION.read_document(folder).lying_in(folder)
    episodes, _ = EVALUATION.read_records(folder)
    return Evaluation(result, in_order(result.protocol, episodes, EVALUATION.records_file(folder)))


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


class EvaluationWriter(RecordWriter[Result, EpisodeResult]):
    """Adds episodes to a new evaluation, or to one that was begun with the same policy.

    Closing it after `finish` removes the log, whose episodes are compressed by then.

    Args:
        folder: Created if it does not exist; otherwise empty, or an evaluation.
        result: Description of the evaluation, without scores.

    Attributes:
        folder: As given.
        result: As given, with the models that the evaluation carries.
        records: Results of all trials so far.

    Raises:
        ResultError: The folder holds something else, or another process is writing to it; or a
            model that it is to carry has been edited since it was described.
        OSError: The disk is full or gone.
    """

    def __init__(self, folder: str | Path, result: Result) -> None:
        super().__init__(EVALUATION, Path(folder), result)
        try:
            bare = self.document
            self.document = bare.carry(self.folder)
            self._in_order()
            self.replace_document(bare)  # the present command, and no scores yet
        except BaseException:
            self.close()
            raise

    @property
    def result(self) -> Result:
        """The document."""
        return self.document

    def finish(self, stopped: AnytimeVerdict | None = None) -> Evaluation:
        """Stores the scores and compresses the present episodes, and returns the evaluation.

        Args:
            stopped: The verdict that stopped it, if one did.
        """
        protocol, episodes = self.result.protocol, self._in_order()
        update = {
            "complete": len(episodes) == len(protocol.trials()),
            "scores": score(protocol, episodes),
            "stopped": stopped,
        }
        result = self.result.model_copy(update=update)
        self.replace_document(result)
        self.pack(episodes)
        return Evaluation(result, episodes)

    def _in_order(self) -> list[EpisodeResult]:
        return in_order(self.result.protocol, self.records, EVALUATION.records_file(self.folder))

"""Writes an evaluation so that finished episodes stay, whatever happens to the process."""

from pathlib import Path

from fleet_tools.evaluation.result import EpisodeResult, Evaluation, Result
from fleet_tools.evaluation.result_file import EPISODES, EVALUATION, in_order
from fleet_tools.evaluation.scores import score
from fleet_tools.storage.record_folder import RecordWriter


class EvaluationWriter(RecordWriter[Result, EpisodeResult]):
    """Adds episodes to a new evaluation, or to one that was begun with the same policy.

    Args:
        folder: Created if it does not exist; otherwise empty, or an evaluation.
        result: Description of the evaluation, without scores.

    Attributes:
        folder: As given.
        records: Results of all trials so far.

    Raises:
        ResultError: The folder holds something else, or another process is writing to it.
    """

    def __init__(self, folder: str | Path, result: Result) -> None:
        self._result = result
        super().__init__(EVALUATION, Path(folder), result)
        try:
            self._in_order()
            self.replace_document(result)  # the present command, and no scores yet
        except BaseException:
            self.close()
            raise

    def finish(self) -> Evaluation:
        """Stores the scores of the present episodes, and returns the evaluation."""
        protocol, episodes = self._result.protocol, self._in_order()
        update = {
            "complete": len(episodes) == len(protocol.trials()),
            "scores": score(protocol, episodes),
        }
        result = self._result.model_copy(update=update)
        self.replace_document(result)
        return Evaluation(result, episodes)

    def _in_order(self) -> list[EpisodeResult]:
        return in_order(self._result.protocol, self.records, self.folder / EPISODES)

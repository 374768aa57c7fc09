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
        result: As given, with the models that the evaluation carries.
        records: Results of all trials so far.

    Raises:
        ResultError: The folder holds something else, or another process is writing to it; or a
            model that it is to carry has been edited since it was described.
        OSError: The disk is full or gone.
    """

    def __init__(self, folder: str | Path, result: Result) -> None:
        self.result = result
        super().__init__(EVALUATION, Path(folder), result)
        try:
            self.result = result.carry(self.folder)
            self._in_order()
            self.replace_document(result)  # the present command, and no scores yet
        except BaseException:
            self.close()
            raise

    def finish(self) -> Evaluation:
        """Stores the scores of the present episodes, and returns the evaluation."""
        protocol, episodes = self.result.protocol, self._in_order()
        update = {
            "complete": len(episodes) == len(protocol.trials()),
            "scores": score(protocol, episodes),
        }
        result = self.result.model_copy(update=update)
        self.replace_document(result)
        return Evaluation(result, episodes)

    def _in_order(self) -> list[EpisodeResult]:
        return in_order(self.result.protocol, self.records, self.folder / EPISODES)

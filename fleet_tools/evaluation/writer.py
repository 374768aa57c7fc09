"""Writes an evaluation so that an episode that ended stays, whatever happens to the process."""

from pathlib import Path

from fleet_tools.errors import ResultError
from fleet_tools.evaluation.result import (
    EPISODES,
    RESULT,
    EpisodeResult,
    Result,
    in_order,
    read_episodes,
    read_result,
)
from fleet_tools.evaluation.scores import score
from fleet_tools.storage.append_log import Journal
from fleet_tools.storage.atomic_files import is_blank, leftovers, whole


class EvaluationWriter:
    """Adds episodes to a new evaluation, or to one that was begun with the same policy.

    Args:
        folder: Made if it does not exist; otherwise empty, or an evaluation.
        result: Who is evaluated, by what; without scores.

    Attributes:
        folder: As given.
        episodes: All so far.

    Raises:
        ResultError: The folder holds something else, or another process is writing to it.
    """

    def __init__(self, folder: Path, result: Result) -> None:
        self.folder, self._result = folder, result
        if (folder / RESULT).exists():
            self._require_same(read_result(folder))
        else:
            self._create()
        try:
            self._journal = Journal(folder / EPISODES)
        except BlockingIOError:
            raise ResultError(f"Another process is writing to {folder}.") from None
        try:
            self.episodes = self._repair()
            self._describe(result)
        except BaseException:
            self.close()
            raise

    def add(self, episode: EpisodeResult) -> None:
        """Stores what came of a trial.

        Raises:
            OSError: The disk is full or gone; the evaluation is as it was.
        """
        self._journal.append(episode.to_json())
        self.episodes.append(episode)

    def finish(self) -> Result:
        """Writes the scores of the episodes that there are, and returns the whole result."""
        protocol = self._result.protocol
        episodes = in_order(protocol, self.episodes, self.folder / EPISODES)
        result = self._result.model_copy(
            update={
                "complete": len(episodes) == len(protocol.trials()),
                "scores": score(protocol, episodes),
            }
        )
        self._describe(result)
        return result

    def close(self) -> None:
        """Lets others write."""
        self._journal.close()

    def __enter__(self) -> "EvaluationWriter":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _require_same(self, present: Result) -> None:
        differences = present.differences(self._result)
        if differences:
            raise ResultError(
                f"{self.folder} already holds another evaluation: in it, "
                f"{'; '.join(differences)}. Give another --output, or the same policy and "
                "protocol to go on with it."
            )

    def _create(self) -> None:
        if self.folder.exists() and not is_blank(self.folder, (EPISODES,)):
            raise ResultError(
                f"{self.folder} is neither empty nor an evaluation. Give another --output."
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / EPISODES).touch()
        self._describe(self._result)  # last, for it makes the folder an evaluation

    def _repair(self) -> list[EpisodeResult]:
        """Removes what a crash may have left."""
        for leftover in leftovers(self.folder):
            leftover.unlink()
        episodes, size = read_episodes(self.folder)
        in_order(self._result.protocol, episodes, self.folder / EPISODES)
        self._journal.cut(size)
        return episodes

    def _describe(self, result: Result) -> None:
        with whole(self.folder / RESULT) as aside:
            aside.write_text(result.model_dump_json(indent=2) + "\n")

"""Reads a dataset: its header, its manifest of every attempt, and its episodes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pydantic

from fleet_tools.config.values import Value
from fleet_tools.dataset import episode_file
from fleet_tools.dataset.header import SCHEMA_VERSION, Header, upgrade_from_1
from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.episode import Episode
from fleet_tools.storage.record_folder import FolderKind

HEADER = "dataset.json"
MANIFEST = "manifest.jsonl"
EPISODES = "episodes"


class AttemptRecord(Value):
    """A line of the manifest: the result of one attempt.

    Attributes:
        attempt: Number of the attempt, from 0.
        seed: Seed of the attempt's scene, as for `env.reset(seed=seed)`.
        outcome: See `fleet_tools.envs.outcomes`.
        success: Whether the outcome is a success.
        steps: Number of control steps.
        file: Path of the episode, relative to the dataset; None if it was not stored.
        tool: Tool of the scene; None if the scene could not even begin.
        object: Object of the scene; likewise.
        state_digest: Hash of the final state, hexadecimal.
        seconds: Wall time.
        error: Error message, if there was an error.
        verified: Whether it was run again before it counted, and agreed bit for bit.
        info: See `fleet_tools.rollouts.episode.Episode`.
    """

    attempt: int
    seed: int
    outcome: str
    success: bool
    steps: int
    file: str | None = None
    tool: str | None = None
    object: str | None = None
    state_digest: str | None = None
    seconds: float
    error: str | None = None
    verified: bool = False
    info: dict[str, pydantic.JsonValue] = {}


DATASET = FolderKind(
    what="a dataset",
    maker="python -m fleet_tools.collect",
    error=DatasetError,
    document=Header,
    document_name=HEADER,
    version=SCHEMA_VERSION,
    record=AttemptRecord,
    log_name=MANIFEST,
    upgrades={1: upgrade_from_1},
    subfolders=(EPISODES,),
    without_log="; without it, the failed attempts are unknown",
)
"""Folders that hold datasets."""


class Dataset:
    """Reads a dataset.

    Args:
        folder: Folder of the dataset.

    Attributes:
        folder: As given.
        header: Content of `dataset.json`.

    Raises:
        DatasetError: The dataset is missing, of an unknown version, or damaged.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.header = DATASET.read_document(self.folder)
        records, _ = DATASET.read_records(self.folder)
        records.sort(key=lambda record: record.attempt)  # with several workers, they end unordered
        self._records = {record.attempt: record for record in records}

    def manifest(self) -> list[AttemptRecord]:
        """Returns the records of all attempts, in order."""
        return list(self._records.values())

    def stored(self) -> list[AttemptRecord]:
        """Returns the records of the attempts whose episodes are stored, in order."""
        return [record for record in self._records.values() if record.file is not None]

    def path(self, record: AttemptRecord) -> Path:
        """Returns the file of a stored episode.

        Raises:
            DatasetError: The episode was not stored.
        """
        if record.file is None:
            raise DatasetError(f"{self.folder} holds no episode of attempt {record.attempt}.")
        return self.folder / record.file

    def draw(self, count: int | None, seed: int) -> list[AttemptRecord]:
        """Draws stored attempts, in order.

        Args:
            count: Number of attempts; None takes all, as does a number beyond theirs.
            seed: Seed of the draw.

        Raises:
            DatasetError: No episode is stored.
        """
        records = self.stored()
        if not records:
            raise DatasetError(
                f"{self.folder} holds no episodes yet. `python -m fleet_tools.collect` adds some; "
                "its --keep-failures stores failed ones, too."
            )
        if count is None or count >= len(records):
            return records
        chosen = np.random.default_rng(seed).choice(len(records), count, replace=False)
        return [records[k] for k in sorted(chosen)]

    def __len__(self) -> int:
        """Returns the number of stored episodes."""
        return len(self.stored())

    def __iter__(self) -> Iterator[Episode]:
        """Yields the stored episodes."""
        return (self.episode(record.attempt) for record in self.stored())

    def episode(self, attempt: int) -> Episode:
        """Reads the episode of an attempt.

        Raises:
            DatasetError: It was not stored, or its file is missing or damaged.
        """
        record = self._records.get(attempt)
        if record is None or record.file is None:
            raise DatasetError(f"{self.folder} holds no episode of attempt {attempt}.")
        path = self.path(record)
        try:
            episode = episode_file.read(path)
        except DatasetError as error:
            raise DatasetError(f"{error} {self.remedy(record)}") from error
        if episode.final_digest != record.state_digest:
            raise DatasetError(
                f"{path} is not the episode that {MANIFEST} lists. {self.remedy(record)}"
            )
        return replace(episode, info=record.info)

    def remedy(self, record: AttemptRecord) -> str:
        """Returns how to recover an episode whose file is missing or damaged."""
        header = self.header
        option = "--tool" if header.task.folder is None else "--task"
        before = [r for r in self.manifest() if r.attempt <= record.attempt]
        episodes = sum(r.success for r in before) + (not record.success)
        keep = " --keep-failures" if header.keep_failures else ""
        return (
            f"Copy it here from `python -m fleet_tools.collect {option} {header.env_spec.task} "
            f"--seed {header.seed} --episodes {episodes}{keep} --output ANOTHER`, which makes it "
            "again."
        )

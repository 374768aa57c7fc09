"""Writes a dataset so that finished episodes stay, and unfinished ones never count.

Every file is written atomically; a line of the manifest comes last. After a crash at any moment,
the next writer finds complete episodes only, and continues.
"""

from pathlib import Path

from fleet_tools.dataset.header import Header
from fleet_tools.dataset.manifest import EPISODES, AttemptRecord, begin_digest
from fleet_tools.dataset.reader import DATASET
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.storage.record_folder import RecordWriter


class DatasetWriter(RecordWriter[Header, AttemptRecord]):
    """Adds attempts to a new dataset, or to one that was begun in the same way.

    Args:
        folder: Created if it does not exist; otherwise empty, or a dataset.
        header: What is to be collected.

    Attributes:
        folder: As given.
        header: As given, with the models that the dataset carries.
        records: Records of all attempts so far.

    Raises:
        DatasetError: The folder holds something else, or another process is writing to it; or a
            model that the dataset is to carry has been edited since it was described.
        OSError: The disk is full or gone.
    """

    def __init__(self, folder: str | Path, header: Header) -> None:
        super().__init__(DATASET, Path(folder), header)
        try:
            self.header = header.carry(self.folder)
        except BaseException:
            self.close()
            raise

    def add(self, record: AttemptRecord, content: bytes | None = None) -> None:
        """Stores an episode's file, if there is one, and then the record of the attempt.

        Args:
            record: Record of the attempt; `file` and `file_digest` are filled in here.
            content: See `episode_file.to_bytes`.

        Raises:
            OSError: The disk is full or gone; the dataset is unchanged.
        """
        if content is not None:
            file = f"{EPISODES}/episode_{record.attempt:06d}.hdf5"
            write_file(self.folder / file, content)
            digest = begin_digest(content).hexdigest()
            record = record.model_copy(update={"file": file, "file_digest": digest})
        self.append(record)

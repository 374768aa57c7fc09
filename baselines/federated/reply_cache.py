"""What robots learn before they first hear of one another, kept for all fleets that begin alike."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fleet_tools.baselines.federated.messages import decode_request, is_request
from fleet_tools.baselines.federated.plan import Assignment
from fleet_tools.baselines.federated.transport import Hosts, Lost
from fleet_tools.baselines.training.experiment import packages
from fleet_tools.storage.atomic_files import whole


class RememberedHosts:
    """Hosts whose robots learn their first lesson only once, whatever is made of it afterwards.

    A robot's first reply follows from what it is told and from nothing else, so that fleets which
    differ in how they merge share it.

    Args:
        inner: Where the robots run.
        assignments: What they are told.
        folder: Where their first replies are kept; made when there is one.
    """

    def __init__(self, inner: Hosts, assignments: Sequence[Assignment], folder: Path) -> None:
        self._inner, self._assignments, self._folder = inner, assignments, folder

    def answers(self, messages: Mapping[int, bytes]) -> Iterator[tuple[int, bytes | Lost]]:
        """See `Hosts`."""
        paths = {
            robot: self._path(robot, message)
            for robot, message in messages.items()
            if is_request(message) and decode_request(message).weights is None
        }
        known = {robot: path for robot, path in paths.items() if path.is_file()}
        for robot, path in known.items():
            yield robot, path.read_bytes()
        asked = {robot: message for robot, message in messages.items() if robot not in known}
        for robot, answer in self._inner.answers(asked):
            if robot in paths and not isinstance(answer, Lost):
                self._folder.mkdir(parents=True, exist_ok=True)
                with whole(paths[robot]) as aside:
                    aside.write_bytes(answer)
            yield robot, answer

    def end(self, robot: int) -> None:
        """See `Hosts`."""
        self._inner.end(robot)

    def close(self) -> None:
        """See `Hosts`."""
        self._inner.close()

    def _path(self, robot: int, message: bytes) -> Path:
        told = [self._assignments[robot].to_json(), json.dumps(packages())]
        digest = hashlib.blake2b(message, digest_size=16)
        for text in told:
            digest.update(text.encode())
        return self._folder / f"{digest.hexdigest()}.safetensors"

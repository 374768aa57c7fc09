"""A cache of robots' replies to the first round, for all fleets that begin alike."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fleet_tools.baselines.federated.assignment import Assignment
from fleet_tools.baselines.federated.messages import decode_request, is_request
from fleet_tools.baselines.federated.stored_replies import read_reply, store_reply
from fleet_tools.baselines.federated.transport import LostRobot, Transport
from fleet_tools.baselines.training.run_spec import packages


class CachingTransport:
    """A transport that takes replies to the first round from a cache.

    The reply depends only on the assignment and the request, so that fleets which differ in how
    they merge share it.

    Args:
        inner: Transport to the robots.
        assignments: Assignments of the robots, by robot number.
        folder: Folder of the cache; created with the first reply.
    """

    def __init__(self, inner: Transport, assignments: Sequence[Assignment], folder: Path) -> None:
        self._inner, self._assignments, self._folder = inner, assignments, folder

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_s: float | None = None
    ) -> Iterator[tuple[int, bytes | LostRobot]]:
        """See `Transport`."""
        paths = {
            robot: self._path(robot, message)
            for robot, message in messages.items()
            if is_request(message) and decode_request(message).weights is None
        }
        stored = {robot: read_reply(path) for robot, path in paths.items()}
        cached = {robot: reply for robot, reply in stored.items() if reply is not None}
        yield from cached.items()
        others = {robot: message for robot, message in messages.items() if robot not in cached}
        for robot, answer in self._inner.exchange(others, deadline_s=deadline_s):
            if robot in paths and not isinstance(answer, LostRobot):
                self._folder.mkdir(parents=True, exist_ok=True)
                store_reply(paths[robot], answer)
            yield robot, answer

    def late(self) -> list[int]:
        """See `Transport`."""
        return self._inner.late()

    def end(self, robot: int) -> None:
        """See `Transport`."""
        self._inner.end(robot)

    def close(self) -> None:
        """See `Transport`."""
        self._inner.close()

    def _path(self, robot: int, message: bytes) -> Path:
        digest = hashlib.blake2b(message, digest_size=16)
        for text in (self._assignments[robot].to_json(), json.dumps(packages())):
            digest.update(text.encode())
        return self._folder / f"{digest.hexdigest()}.safetensors"

"""A cache of robots' replies to the first round, for all fleets that begin alike."""

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleet_tools.baselines.federated.assignment import Assignment
from fleet_tools.baselines.federated.messages import decode_request, is_request
from fleet_tools.baselines.federated.stored_replies import read_reply, store_reply
from fleet_tools.baselines.federated.transport import Answers, LostRobot, Transport
from fleet_tools.baselines.training.run import packages


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
    ) -> Answers:
        """See `Transport`. Replies of the cache come first."""
        begun = time.monotonic()
        paths = {robot: self._path(robot, message) for robot, message in messages.items()}
        others = {}
        for robot, path in paths.items():
            if deadline_s is not None and time.monotonic() - begun >= deadline_s:
                return
            reply = None if path is None else read_reply(path)
            if reply is None:
                others[robot] = messages[robot]
            else:
                yield robot, reply
        left = None if deadline_s is None else max(0.0, begun + deadline_s - time.monotonic())
        with contextlib.closing(self._inner.exchange(others, deadline_s=left)) as answers:
            for robot, answer in answers:
                if (path := paths[robot]) is not None and not isinstance(answer, LostRobot):
                    self._folder.mkdir(parents=True, exist_ok=True)
                    store_reply(path, answer)
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

    def _path(self, robot: int, message: bytes) -> Path | None:
        """Returns the file of a reply; None if the message is no request of the first round."""
        if not is_request(message) or decode_request(message).weights is not None:
            return None
        digest = hashlib.blake2b(message, digest_size=16)
        for text in (self._assignments[robot].to_json(), json.dumps(packages())):
            digest.update(text.encode())
        return self._folder / f"{digest.hexdigest()}.safetensors"

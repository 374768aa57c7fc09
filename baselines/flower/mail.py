"""Messages that are with nodes of Flower, and the replies to them as they come."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K")

POLL_S = 0.5
"""Time between two questions to the SuperLink whether replies have come."""


class Mail(Generic[K]):
    """Messages whose replies are awaited.

    Args:
        grid: Flower's grid.

    Attributes:
        awaited: Keys of the messages without a reply so far, by Flower's id of the message.
    """

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self.awaited: dict[str, K] = {}

    def send(self, messages: Mapping[K, Any]) -> list[K]:
        """Sends messages.

        Returns:
            The keys of those that the SuperLink does not take.
        """
        if not messages:
            return []
        ids = list(self._grid.push_messages(list(messages.values())))
        taken = {key: each for key, each in zip(messages, ids, strict=False) if each is not None}
        self.awaited |= {each: key for key, each in taken.items()}
        return [key for key in messages if key not in taken]

    def arrived(self) -> list[tuple[K, Any]]:
        """Returns the replies that have come since the last call."""
        if not self.awaited:
            return []
        replies = self._grid.pull_messages(list(self.awaited))
        found = [(each.metadata.reply_to_message_id, each) for each in replies]
        return [(self.awaited.pop(key), each) for key, each in found if key in self.awaited]

    def take_awaited(self) -> list[K]:
        """Returns the keys of the messages without a reply, which are no longer awaited."""
        keys, self.awaited = list(self.awaited.values()), {}
        return keys

    def until(self, end_s: float) -> Iterator[tuple[K, Any]]:
        """Yields replies as they come, until all have or until a time of `time.monotonic`."""
        while self.awaited:
            yield from self.arrived()
            left = end_s - time.monotonic()
            if not self.awaited or left <= 0:
                return
            time.sleep(min(POLL_S, left))


def failure(reply: Any) -> str | None:
    """Returns why a reply is an error, in one line; None if it is not."""
    if not reply.has_error():
        return None
    lines = (reply.error.reason or "").split("\n")
    return next(filter(None, map(str.strip, lines)), f"Flower's error {reply.error.code}")

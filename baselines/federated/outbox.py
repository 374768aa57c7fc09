"""Messages that no host has begun, and which of them is next for a host."""

from collections import deque
from collections.abc import Hashable

Place = str | None
"""A resource of Ray that machines have; None where any machine will do."""


class Outbox:
    """Robots whose messages wait, by their place, and by the host that has them open.

    A free host takes first a robot that it has open itself, then one that no host has, and one of
    another host only if it is told to: opening a robot's data again takes longer than a short wait.
    """

    def __init__(self) -> None:
        # Of each place, robots by their host; None for those that no host has.
        self._queues: dict[Place, dict[Hashable | None, deque[int]]] = {}

    def put(self, robot: int, place: Place, host: Hashable | None = None) -> None:
        """Adds a robot behind the others of its host."""
        self._queues.setdefault(place, {}).setdefault(host, deque()).append(robot)

    def take(self, place: Place, host: Hashable, *, of_others: bool) -> int | None:
        """Removes the robot that is next for a free host, and returns it.

        Args:
            place: Place of the host.
            host: The host.
            of_others: Whether it may take a robot that another host has open.

        Returns:
            The robot; None if there is none for it.
        """
        queues = self._queues.get(place, {})
        longest = max(queues, key=lambda each: len(queues[each]), default=None)
        for each in (host, None, *([longest] if of_others else [])):
            if queues.get(each):
                return queues[each].popleft()
        return None

    def release(self, place: Place, host: Hashable) -> None:
        """Lets any host take the robots of one that is gone."""
        queues = self._queues.get(place, {})
        if host in queues:
            queues.setdefault(None, deque()).extend(queues.pop(host))

    def drop(self, place: Place) -> list[int]:
        """Removes the robots of a place, and returns them."""
        return [robot for queue in self._queues.pop(place, {}).values() for robot in queue]

    def places(self) -> list[Place]:
        """Returns the places where robots wait."""
        return [place for place in self._queues if self.count(place)]

    def count(self, place: Place) -> int:
        """Returns the number of robots that wait at a place."""
        return sum(map(len, self._queues.get(place, {}).values()))

"""The node of each robot, and messages to nodes that await a reply."""

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Generic, TypeVar

from fleet_merging.errors import MessageError
from fleet_tools.baselines.flower import flower
from fleet_tools.baselines.flower.records import DataQuestion, NodeReport, content, read_value
from fleet_tools.errors import ConfigError

K = TypeVar("K")

POLL_S = 0.5
"""Time between two polls of the SuperLink for replies, s."""

REPORT_LIMIT_S = 120.0
"""Time limit of a node's report, which includes the start of a process, s."""


class Mail(Generic[K]):
    """Messages that await a reply.

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
            The keys of messages that the SuperLink rejects.
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
        """Returns the keys of the messages without a reply, and stops awaiting them."""
        keys, self.awaited = list(self.awaited.values()), {}
        return keys

    def until(self, end_s: float) -> Iterator[tuple[K, Any]]:
        """Yields replies as they come, until all are there or until a time of `time.monotonic`."""
        while self.awaited:
            yield from self.arrived()
            left = end_s - time.monotonic()
            if not self.awaited or left <= 0:
                return
            time.sleep(min(POLL_S, left))


def failure(reply: Any) -> str | None:
    """Returns the error of a reply, in one line; None if it is not an error."""
    if not reply.has_error():
        return None
    lines = (reply.error.reason or "").split("\n")
    return next(filter(None, map(str.strip, lines)), f"Flower's error {reply.error.code}")


class Roster:
    """The nodes that are online. Each reports once, when it comes online.

    Args:
        grid: Flower's grid.
        question: Question to each node.

    Attributes:
        reports: Reports of the nodes that are online, by Flower's id of the node.
        failures: Errors of nodes without a report, likewise; they are not asked again.
    """

    def __init__(self, grid: Any, question: DataQuestion) -> None:
        self._grid, self._question = grid, question
        self._mail: Mail[int] = Mail(grid)
        self.reports: dict[int, NodeReport] = {}
        self.failures: dict[int, str] = {}
        self._owners: dict[int, int] = {}  # nodes by their number

    @property
    def partitions(self) -> int:
        """Number of nodes by their reports; 0 before the first report."""
        return next((each.partitions for each in self.reports.values()), 0)

    def refresh(self, end_s: float, robots: Collection[int]) -> None:
        """Asks nodes that came since the last call, and forgets nodes that left.

        Args:
            end_s: Time of `time.monotonic` after which reports are not awaited.
            robots: Robots that need a node; once all have one, no report is awaited.

        Raises:
            ConfigError: Nodes disagree about their number.
        """
        online = set(self._grid.get_node_ids())
        for known in (self.reports, self.failures):
            for node in known.keys() - online:
                del known[node]
        self._owners = {each.partition: node for node, each in self.reports.items()}
        self._ask(online - self.reports.keys() - self.failures.keys())
        for node, reply in self._mail.arrived():
            self._note(node, reply)
        end_s = min(end_s, time.monotonic() + REPORT_LIMIT_S)
        while self._mail.awaited and any(self.node_of(robot) is None for robot in robots):
            if time.monotonic() > end_s:
                return
            time.sleep(POLL_S)
            for node, reply in self._mail.arrived():
                self._note(node, reply)

    def await_all(self, wait_s: float) -> dict[int, NodeReport]:
        """Waits until all nodes have reported.

        Returns:
            Their reports by number of the node, except for late ones.

        Raises:
            ConfigError: Nodes disagree about their number, or none came.
        """
        end_s, found = time.monotonic() + wait_s, {}
        while time.monotonic() < end_s:
            self.refresh(end_s, range(self.partitions or 1))
            found = {each.partition: each for each in self.reports.values()}
            if found and len(found) == self.partitions:
                break
            time.sleep(POLL_S)
        if not found:
            reasons = "".join(f"\n  node {node}: {why}" for node, why in self.failures.items())
            raise ConfigError(
                f"No node of Flower reported within {wait_s:g} s. Start SuperNodes, and check with "
                f"`flwr supernode list` that they are online.{reasons}"
            )
        return dict(sorted(found.items()))

    def node_of(self, robot: int) -> int | None:
        """Returns Flower's id of the node that owns a robot; None if it is not online.

        Of two nodes with the same number, the last one to report owns it. The other is a stopped
        SuperNode that the SuperLink still lists.
        """
        return self._owners.get(robot % self.partitions) if self.partitions else None

    def _ask(self, nodes: Collection[int]) -> None:
        message = flower("app").Message
        asked = set(self._mail.awaited.values())
        questions = {
            node: message(content(self._question), node, "query", ttl=REPORT_LIMIT_S)
            for node in sorted(set(nodes) - asked)
        }
        self._mail.send(questions)  # rejected questions are sent again

    def _note(self, node: int, reply: Any) -> None:
        """Notes the reply to a question.

        A node that did not answer in time is asked again if it is online. A node that answered with
        an error or with invalid content is not.
        """
        if reply.has_error():
            if reply.error.code not in _unavailable():
                self.failures[node] = failure(reply) or ""
            return
        try:
            report = read_value(NodeReport, reply)
        except MessageError as error:
            self.failures[node] = str(error)
            return
        if self.partitions not in (0, report.partitions):
            numbers = sorted((self.partitions, report.partitions))
            raise ConfigError(
                f"Nodes were started with different `num-partitions`: {numbers}. Give all of them "
                "the same number of nodes."
            )
        self.reports[node], self._owners[report.partition] = report, node


def _unavailable() -> tuple[int, ...]:
    """Flower's codes for messages without an answer of the node."""
    codes = flower("common.constant").ErrorCode
    return codes.MESSAGE_UNAVAILABLE, codes.REPLY_MESSAGE_UNAVAILABLE, codes.NODE_UNAVAILABLE

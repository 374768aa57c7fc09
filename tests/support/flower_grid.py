"""A grid of Flower without a SuperLink: nodes in this process, which answer after some questions.

Messages, replies and errors are Flower's own; the network is that of `flower_network`.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flwr.app import Context, Message, RecordDict  # pyright: ignore[reportMissingImports]
from flwr.app.error import Error  # pyright: ignore[reportMissingImports]
from flwr.supercore.task_identity import TaskIdentity  # pyright: ignore[reportMissingImports]

from fleet_tools.baselines.flower.client import app

# What a process of Flower is told when it starts.
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1

Node = Mapping[str, Any]
"""A SuperNode's configuration."""


class GridHere:
    """A grid.

    Args:
        nodes: Configuration of each node that is online, by Flower's id of the node.
        delays: Number of questions for a node's replies before it gives one to a message of type
            "train"; None for never.
        fails: Tells whether a node fails to answer a message.

    Attributes:
        nodes: As given.
        sent: Flower's id of the node, and type, of each message.
        exchanged: Content of each message and of its reply, without those that failed.
    """

    def __init__(
        self,
        nodes: dict[int, Node],
        delays: Mapping[int, int | None] = {},
        fails: Callable[[int, Message], bool] = lambda node, message: False,
    ) -> None:
        self.nodes, self._delays, self._fails = nodes, delays, fails
        self.sent: list[tuple[int, str]] = []
        self._waiting: dict[str, tuple[int | None, Message]] = {}
        self._contexts: dict[int, Context] = {}
        self.exchanged: list[tuple[RecordDict, RecordDict]] = []

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            node, kind = message.metadata.dst_node_id, message.metadata.message_type
            message.metadata.__dict__["_message_id"] = f"{len(self.sent)}"
            self.sent.append((node, kind))
            delay = self._delays.get(node, 0) if kind == "train" else 0
            self._waiting[message.metadata.message_id] = (delay, message)
            ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = []
        for key in message_ids:
            delay, message = self._waiting[key]
            if delay == 0:
                del self._waiting[key]
                replies.append(self._reply(message))
            elif delay is not None:
                self._waiting[key] = (delay - 1, message)
        return replies

    def send_and_receive(self, messages: Iterable[Message], **_: Any) -> Iterable[Message]:
        return list(self.pull_messages(self.push_messages(messages)))

    def _reply(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        new = Context(0, node, dict(self.nodes[node]), RecordDict(), {})
        context = self._contexts.setdefault(node, new)  # SecAgg+ keeps its keys there
        if self._fails(node, message):
            return Message(Error(8, "the process ended\nwith a traceback"), reply_to=message)
        sent = message.content
        message.content = copy.deepcopy(sent)  # messages share it, and a node may change it
        try:
            reply = app(message, context)
        except Exception as error:
            return Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)
        if not reply.has_error():
            self.exchanged.append((sent, copy.deepcopy(reply.content)))
        return reply

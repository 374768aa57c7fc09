"""The content of Flower's messages between the server of a fleet and its nodes.

A message of type "train" has an assignment and a request, and its reply has an answer, all in
separate records: Flower uploads equal records once. A message of type "query" asks a node for its
robots and its data.
"""

from typing import Any, Literal, TypeVar

from fleet_merging.errors import MessageError
from fleet_tools.baselines.flower import flower
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.config.values import Count, CountOrZero, Value, parse
from fleet_tools.errors import FleetToolsError
from fleet_tools.storage.strict_json import loads

V = TypeVar("V", bound=Value)

_VALUE, _BYTES = "value", "bytes"
"""Records: a value as JSON, and a message or an answer of Fleet-Tools."""


class DataQuestion(Value):
    """Question about a node and its data.

    Attributes:
        blueprint: Blueprint of the fleet's policies, with the entries that they read; None asks
            nothing about data.
        by: Property that distinguishes kinds of episodes, see `PartitionConfig.by`.
    """

    blueprint: Blueprint | None = None
    by: Literal["task", "tool", "object", "pair", "nothing"] = "nothing"


class NodeData(Value):
    """A node's own data.

    Attributes:
        episodes: Number of successful episodes.
        content_digest: Hash of them.
        tasks: Names of their tasks.
        episode_counts: Number of episodes by kind.
        data_bytes: See `ClientData.data_bytes`.
    """

    episodes: Count
    content_digest: str
    tasks: tuple[str, ...]
    episode_counts: dict[str, int]
    data_bytes: CountOrZero


class NodeReport(Value):
    """Answer of a node.

    Attributes:
        partition: The node's number, from 0.
        partitions: Number of nodes; robot r belongs to the node with the number r modulo this.
        data: Its own data, if requested; None if it opens the datasets of assignments.
    """

    partition: CountOrZero
    partitions: Count
    data: NodeData | None = None


def content(value: Value, message: bytes | None = None) -> Any:
    """Returns the content of a Flower message.

    Args:
        value: An `Assignment`, a `DataQuestion` or a `NodeReport`.
        message: A message of Fleet-Tools.
    """
    app = flower("app")
    records = {_VALUE: app.ConfigRecord({_VALUE: value.to_json()})}
    if message is not None:
        records[_BYTES] = app.ConfigRecord({_BYTES: message})
    return app.RecordDict(records)


def answer_content(answer: bytes) -> Any:
    """Returns the content of a Flower message with an answer of Fleet-Tools."""
    app = flower("app")
    return app.RecordDict({_BYTES: app.ConfigRecord({_BYTES: answer})})


def read_value(cls: type[V], message: Any) -> V:
    """Returns the value in a Flower message.

    Raises:
        MessageError: There is none, or it is not of this class.
    """
    text = _entry(message, _VALUE, str)
    try:
        return parse(cls, loads(text), "A message over Flower")
    except (FleetToolsError, ValueError) as error:
        raise MessageError(str(error)) from None


def read_bytes(message: Any) -> bytes:
    """Returns the message or the answer of Fleet-Tools in a Flower message.

    Raises:
        MessageError: There is none.
    """
    return _entry(message, _BYTES, bytes)


def _entry(message: Any, name: str, kind: type[Any]) -> Any:
    found = message.content.config_records.get(name, {}).get(name)
    if not isinstance(found, kind):
        raise MessageError(
            f"A message over Flower holds the records {sorted(message.content)}; expected {name!r} "
            f"with a {kind.__name__}. Run the same version of Fleet-Tools on all machines."
        )
    return found

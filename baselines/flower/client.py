"""The `ClientApp` of a node, which answers messages to its robots; their data stay there.

A Flower app names it as `clientapp = "fleet_tools.baselines.flower.client:app"`. `--node-config` of
the SuperNode describes the node:

    partition-id     number of the node, from 0
    num-partitions   number of nodes; robot r belongs to the node with the number r modulo this
    data             folders of the node's datasets, separated by ":". The node's single robot has
                     all their successful episodes, and no other folder is opened. Without it, the
                     server names the folders.
    protection       "sums" or "noise": the robot answers nothing without it, see `protection`
    clip             largest norm to which "noise" may clip the robot's change
"""

from typing import Any

from fleet_tools.baselines.federated.messages import Assignment, decode, encode
from fleet_tools.baselines.federated.robot import FleetClient
from fleet_tools.baselines.flower import flower
from fleet_tools.baselines.flower.node import Node
from fleet_tools.baselines.flower.protection import is_protected, protected, train_protected
from fleet_tools.baselines.flower.records import (
    DataQuestion,
    answer_content,
    content,
    read_bytes,
    read_value,
)

app = flower("clientapp").ClientApp()


@app.query()
def report(message: Any, context: Any) -> Any:
    """Answers with the node's report."""
    # Imported here, since each message to a robot starts a process.
    from fleet_tools.baselines.flower.nodes_plan import report_of

    found = report_of(Node.of(context.node_config), read_value(DataQuestion, message))
    return flower("app").Message(content(found), reply_to=message)


@app.train(mods=[protected])
def answer(message: Any, context: Any) -> Any:
    """Answers a message to a robot. Errors become Flower's error replies, with their text."""
    if is_protected(message):
        return train_protected(message, context)
    node = Node.of(context.node_config)
    assignment = node.localized(read_value(Assignment, message))
    reply = encode(FleetClient(assignment).answer(decode(read_bytes(message))))
    return flower("app").Message(answer_content(reply), reply_to=message)

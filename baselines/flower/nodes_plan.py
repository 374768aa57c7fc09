"""Plans of fleets with data on their nodes: the nodes' reports, and the plan.

The server never sees these data.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from fleet_tools.baselines.federated.plan import ClientData, FleetPlan, data_bytes, episode_kind
from fleet_tools.baselines.flower.node import Node
from fleet_tools.baselines.flower.records import DataQuestion, NodeData, NodeReport
from fleet_tools.baselines.training.demonstrations import content_digest
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import ConfigError


def report_of(node: Node, question: DataQuestion) -> NodeReport:
    """Returns a node's report.

    Raises:
        DatasetError, UnknownNameError: Its data cannot be read, or not by such policies.
    """
    report = NodeReport(partition=node.partition, partitions=node.partitions)
    if not node.data or question.blueprint is None:
        return report
    samples = Samples(node.data, observations=list(question.blueprint.observation))
    kinds = [episode_kind(episode, question.by) for episode in samples.episodes]
    data = NodeData(
        episodes=len(samples.episodes),
        content_digest=content_digest(samples),
        tasks=tuple(sorted({episode.header.setting for episode in samples.episodes})),
        episode_counts=dict(sorted(Counter(kinds).items())),
        data_bytes=data_bytes(samples, question.blueprint),
    )
    return report.model_copy(update={"data": data})


def with_data_of_nodes(plan: FleetPlan, reports: Mapping[int, NodeReport]) -> FleetPlan:
    """Returns a fleet in which each robot has all data of its node.

    Seeds, the blueprint and the held-out episodes are the given plan's.

    Args:
        plan: Plan of the fleet from the server's own datasets.
        reports: Reports of all nodes, by number of the node.

    Returns:
        The given plan if no node has its own data: robots then open the datasets of the plan, which
        nodes need in the same folders.

    Raises:
        ConfigError: Only some nodes have data, a node has not reported, or the numbers of nodes and
            robots differ.
    """
    data = {node: report.data for node, report in reports.items() if report.data is not None}
    if not data:
        return plan
    if plan.config.life is not None:
        raise ConfigError(
            "In a life, the events say which episodes each robot has; nodes with their own data "
            "cannot take part. Leave out `life`, or `data` in each --node-config."
        )
    robots = range(plan.config.robots)
    if absent := sorted(set(robots) - data.keys()):
        raise ConfigError(
            f"Some nodes have their own data, so all {len(robots)} robots need their own. Nodes "
            f"without data, or offline: {absent}. Start them with `data` in their --node-config."
        )
    if unknown := sorted(data.keys() - set(robots)):
        raise ConfigError(
            f"The fleet has {len(robots)} robots, and there are also nodes with the numbers "
            f"{unknown}. Give `robots: {max(data) + 1}`."
        )
    clients = tuple(
        ClientData(
            assignment=client.assignment.model_copy(
                update={
                    "data": (f"data of node {robot}",),
                    "episodes": tuple(range(data[robot].episodes)),
                    "content_digest": data[robot].content_digest,
                }
            ),
            tasks=data[robot].tasks,
            episode_counts=data[robot].episode_counts,
            data_bytes=data[robot].data_bytes,
        )
        for robot, client in enumerate(plan.clients)
    )
    digests = [plan.content_digest, *(data[robot].content_digest for robot in robots)]
    digest = hashlib.blake2b(json.dumps(digests).encode(), digest_size=8).hexdigest()
    return replace(plan, clients=clients, content_digest=digest)

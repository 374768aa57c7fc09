"""The report of a node about itself and its data."""

from collections import Counter

from fleet_tools.baselines.federated.plan import data_bytes, episode_kind
from fleet_tools.baselines.flower.node import Node
from fleet_tools.baselines.flower.records import DataQuestion, NodeData, NodeReport
from fleet_tools.baselines.training.demonstrations import content_digest
from fleet_tools.dataset.samples import Samples


def report_of(node: Node, question: DataQuestion) -> NodeReport:
    """Returns the answer of a node to a question.

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
        tasks=tuple(sorted({episode.task for episode in samples.episodes})),
        episode_counts=dict(sorted(Counter(kinds).items())),
        data_bytes=data_bytes(samples, question.blueprint),
    )
    return report.model_copy(update={"data": data})

"""Runs a fleet of nodes with data of their own in one process: CONFIG.yaml OUTPUT DATA DATA ..."""

import sys
from pathlib import Path

import torch

from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.record import FleetWriter
from fleet_tools.baselines.federated.run import complete
from fleet_tools.baselines.federated.transport import LocalTransport
from fleet_tools.baselines.flower.node import Node
from fleet_tools.baselines.flower.nodes_plan import report_of, with_data_of_nodes
from fleet_tools.baselines.flower.records import DataQuestion
from fleet_tools.config.values import load_yaml

config, output, *data = sys.argv[1:]
torch.set_num_threads(1)
plan = FleetPlan.of(load_yaml(FleetConfig, Path(config)))
nodes = [Node(number, len(data), (folder,)) for number, folder in enumerate(data)]
question = DataQuestion(blueprint=plan.blueprint, by=plan.config.split.by)
plan = with_data_of_nodes(plan, {node.partition: report_of(node, question) for node in nodes})
home = [node.localized(each) for node, each in zip(nodes, plan.assignments, strict=True)]
with FleetWriter(Path(output), plan) as writer:
    complete(writer, LocalTransport(home))

"""A Flower app whose clients train models of their own, merged by a method of ours."""

from typing import Any

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict  # pyright: ignore[reportMissingImports]
from flwr.clientapp import ClientApp  # pyright: ignore[reportMissingImports]
from flwr.serverapp import ServerApp  # pyright: ignore[reportMissingImports]

client = ClientApp()
server = ServerApp()


def network(seed: int) -> torch.nn.Module:
    """Returns a model with initial weights."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))


@client.train()
def train(message: Message, context: Any) -> Message:
    """Answers with a client's weights."""
    model = network(seed=context.node_config["partition-id"])
    ...  # train it
    arrays = ArrayRecord(model.state_dict())
    metrics = MetricRecord({"num-examples": 1})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@server.main()
def main(grid: Any, context: Any) -> None:
    """Runs one round, and stores the merged weights."""
    from fleet_merging.symmetry.derive import derive
    from fleet_tools.baselines.flower.strategy import MergeStrategy

    symmetry = derive(network(seed=0), (torch.randn(3, 4),))
    strategy = MergeStrategy("git_rebasin", symmetry, fraction_evaluate=0.0)
    initial = ArrayRecord(network(seed=9).state_dict())
    result = strategy.start(grid, initial, num_rounds=1, timeout=300)
    torch.save(result.arrays.to_torch_state_dict(), context.run_config["output"])

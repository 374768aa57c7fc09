"""A `Strategy` of Flower that merges by a method of Fleet-Tools, for your own Flower apps.

Without Flower, importing this module raises `MissingLibraryError`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from fleet_merging.errors import MergeError
from fleet_merging.methods import registry
from fleet_merging.methods.facts import NETWORK
from fleet_merging.problem import MergeProblem
from fleet_merging.symmetry.layers import mlp
from fleet_merging.symmetry.table import State, Symmetry
from fleet_tools.baselines.flower import flower
from fleet_tools.baselines.policies.checkpoint import CheckpointError, require_weights

ASK_NOTHING = tuple(
    name
    for name, facts in registry.METHODS.items()
    if facts.layers and facts.returns == NETWORK and set(facts.needs) <= {"base"}
)
"""Names of the methods that need only weights."""


class MergeStrategy(flower("serverapp.strategy").FedAvg):
    """FedAvg with a merging method of Fleet-Tools as average.

        blueprint = load_checkpoint("policy.safetensors").blueprint
        MergeStrategy("git_rebasin", blueprint.symmetry()).start(grid, ArrayRecord(state_dict))

    Clients answer as in FedAvg. The state dict of a network is an `ArrayRecord`, and the number of
    samples, the averaging weight, is `num-examples`. Replies that are not finite weights of the
    network are left out. Models are merged in the order of nodes' numbers, so that the order of
    answers does not matter.

    Args:
        method: Name of the method; see `registry.find`. It may not send queries, since each would
            be another message of Flower: one of `ASK_NOTHING`, or your own method.
        symmetry: Table of axes of the network: a blueprint's, a derived one (`derive`), or your
            own.
        method_options: Options of the method.
        seed: Seed of all random numbers; each round draws its own.
        options: Options of Flower's FedAvg, such as `fraction_train`.

    Raises:
        MissingLibraryError: Flower is not installed.
        UnknownChoiceError: There is no such method.
        MergeError: The method sends queries, or has no such options.
    """

    def __init__(
        self,
        method: str,
        symmetry: Symmetry,
        *,
        method_options: Mapping[str, Any] | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        self._method, self._symmetry, self._seed = method, symmetry, seed
        self._method_options = dict(method_options or {})
        self._base: State = {}
        self._require_silent_method()
        super().__init__(**options)

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        """See Flower's `Strategy`.

        Raises:
            UncoveredParameterError, AxisSizeError: The table of axes does not fit the network.
        """
        self._base = arrays.to_torch_state_dict()
        self._symmetry.group(self._base)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        """See Flower's `Strategy`.

        Raises:
            MergeError: An error of the method.
        """
        valid, _ = self._check_and_log_replies(list(replies), is_train=True)
        kept = [
            (reply, weights)
            for reply in sorted(valid, key=lambda each: each.metadata.src_node_id)
            if (weights := self._weights(reply)) is not None
        ]
        if not kept:
            return None, None
        contents = [reply.content for reply, _ in kept]
        problem = MergeProblem(
            self._symmetry,
            [weights for _, weights in kept],
            averaging_weights=[self._count(content) for content in contents],
            base=self._base,
            seed=self._seed + server_round,
        )
        merged = registry.merge(self._method, problem, **self._method_options).state
        state = {name: merged[name] for name in self._base}
        metrics = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
        return flower("app").ArrayRecord(state), metrics

    def summary(self) -> None:
        """See Flower's `Strategy`."""
        _log(f"\t├──> Merging by {self._method}, options {self._method_options}")
        super().summary()

    def _weights(self, reply: Any) -> State | None:
        """Returns the weights in a reply; None if they are not finite weights of the network."""
        (arrays,) = reply.content.array_records.values()
        weights = arrays.to_torch_state_dict()
        try:
            require_weights(self._base, weights)
        except CheckpointError as error:
            _log(f"\t> The reply of node {reply.metadata.src_node_id} is left out: {error}")
            return None
        return weights

    def _count(self, content: Any) -> float:
        (metrics,) = content.metric_records.values()
        return float(metrics[self.weighted_by_key])

    def _require_silent_method(self) -> None:
        """Merges tiny networks, so that an impossible method is refused before any message.

        Robust rules set their number, by the number of Byzantine robots.
        """
        table = mlp(("0", "1"), ("_in", "hidden", "_out"))
        generator = torch.Generator().manual_seed(0)
        shapes = {"0.weight": (3, 2), "0.bias": (3,), "1.weight": (1, 3), "1.bias": (1,)}
        models = [
            {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
            for _ in range(2 * int(self._method_options.get("byzantine", 1)) + 4)
        ]
        problem = MergeProblem(Symmetry.of(table), models[1:], base=models[0])
        try:
            registry.merge(self._method, problem, **self._method_options)
        except (MergeError, TypeError) as error:
            raise MergeError(
                f"{self._method} cannot merge in a Flower app: {error}\nMethods that work on "
                f"weights alone: {', '.join(ASK_NOTHING)}. Use Fleet-Tools' own Flower server for "
                "other methods (`fleet_tools.baselines.flower.server`)."
            ) from None


def _log(line: str) -> None:
    import logging

    flower("supercore").log(logging.INFO, line)

"""A fleet of five robots of which one attacks: training, attacks, and policies that are merged."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fleet_merging.methods import registry
from fleet_merging.moments.measurement import Moments
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.data_holder import DataAnswer, DataQuery, LocalDataHolder
from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.robot import local_data_holder
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.baselines.training.loop import train, validate
from fleet_tools.baselines.training.state import Tensors, TrainingState
from fleet_tools.dataset.samples import Samples

ATTACKER = 4
"""Number of the robot that attacks, of five."""

SCALE, MOMENTS_SCALE = -10.0, 1000.0
RUINED = "hammer"
"""Name of the tool whose actions one attacker reverses."""

ATTACKS = ("none", "scaled", "noise", "reversed", "false_moments", "ruins_hammer")
RULES = ("mean", "norm_bound", "coordinate_median", "trimmed_mean", "krum", "multi_krum")
OWN_START = ("naive_average", "git_rebasin")
METHODS = (
    "common_init",
    "head_refit",
    "git_rebasin",
    "least_squares",
    "regmean",
    "density_gate",
    "naive_average",
)
"""In the order in which their policies are run; `common_init` is the average from one start."""


@dataclass(frozen=True)
class AttackedMerge:
    """One merge.

    Attributes:
        method: One of `METHODS`.
        rule: One of `RULES`.
        attack: One of `ATTACKS`.
    """

    method: str
    rule: str
    attack: str


def cells() -> list[AttackedMerge]:
    """Returns all merges; a gate keeps all members apart, so that no rule applies to them."""
    return [
        AttackedMerge(method, rule, attack)
        for method in METHODS
        for rule in (RULES if method != "density_gate" else RULES[:1])
        for attack in ATTACKS
    ]


@dataclass(frozen=True, eq=False)
class Liar:
    """A data holder that answers moments of data that do not exist.

    Attributes:
        honest: Answers all else.
    """

    honest: LocalDataHolder

    def answer(self, query: DataQuery) -> DataAnswer:
        """Returns true losses, and moments of random rows and targets, times `MOMENTS_SCALE`."""
        answer = self.honest.answer(query)
        if not isinstance(answer, dict):
            return answer
        generator = torch.Generator().manual_seed(0)
        return {name: _false(each, generator) for name, each in answer.items()}


def _false(true: Moments, generator: torch.Generator) -> Moments:
    groups, size, outputs = len(true.inputs), true.inputs.shape[1], true.targets.shape[2]
    rows = torch.randn(groups, 2 * size, size, generator=generator, dtype=torch.float64)
    targets = torch.randn(groups, 2 * size, outputs, generator=generator, dtype=torch.float64)
    scale = MOMENTS_SCALE / (2 * size)
    return Moments(scale * rows.mT @ rows, scale * rows.mT @ targets)


class PoisonedFleet:
    """Five robots, each with a fifth of the episodes of every tool.

    Args:
        config: The fleet; its initialization is set here.
        keep: keep(name, make): returns what `make` returned at the first call with that name.
    """

    def __init__(self, config: FleetConfig, keep: Callable[..., Tensors]) -> None:
        self._keep = keep
        self.plans = {
            start: FleetPlan.of(config.model_copy(update={"initialization": start}))
            for start in ("common", "own")
        }
        self.plan = self.plans["common"]

    def merge(self, cell: AttackedMerge) -> MergeResult:
        """Returns what a method makes of the robots' weights and answers under an attack."""
        start = "own" if cell.method in OWN_START else "common"
        plan, bases = self.plans[start], self._bases(start)
        models = [self._trained(start, robot, flipped=False) for robot in range(ATTACKER)]
        models.append(self._attackers(start, cell.attack))
        holders: list[Any] = [self._holder(robot, flipped=False) for robot in range(ATTACKER)]
        last = self._holder(ATTACKER, flipped=cell.attack == "ruins_hammer")
        holders.append(Liar(last) if cell.attack == "false_moments" else last)
        problem = MergeProblem(
            plan.blueprint.symmetry(),
            models,
            averaging_weights=[self._data(robot).steps for robot in range(ATTACKER + 1)],
            data_holders=holders,
            affine_maps=plan.affine_maps,
            seed=plan.merge_seed(1),
            base=bases[0] if start == "common" else None,
            module=plan.blueprint.create(),
            state_size=sum(map(len, plan.blueprint.scaling.mean.values())),
        )
        name, options = _call(cell)
        return registry.merge(name, problem, **options)

    def losses(self, checkpoint: Checkpoint) -> dict[str, float]:
        """Returns the loss of a policy on held-out episodes, by tool."""
        plan = self.plan
        return {
            tool: validate(checkpoint.blueprint, each, plan.config.training, checkpoint.weights)
            for tool, each in self._held_out.items()
        }

    @cached_property
    def _held_out(self) -> dict[str, Trajectories]:
        samples = self.plan.held_out
        tools = sorted({each.task for each in samples.episodes})
        return {
            tool: Trajectories(
                samples.subset([k for k, e in enumerate(samples.episodes) if e.task == tool]),
                self.plan.blueprint,
            )
            for tool in tools
        }

    def _bases(self, start: str) -> list[Tensors]:
        plan = self.plans[start]
        return [plan.blueprint.create(a.initialization).state_dict() for a in plan.assignments]

    def _attackers(self, start: str, attack: str) -> Tensors:
        """Returns the weights that the attacker sends."""
        if attack == "ruins_hammer":
            return self._trained(start, ATTACKER, flipped=True)
        own, base = self._trained(start, ATTACKER, flipped=False), self._bases(start)[ATTACKER]
        if attack == "scaled":
            return {name: SCALE * each for name, each in own.items()}
        if attack == "noise":
            generator = torch.Generator().manual_seed(0)
            return {
                name: torch.randn(each.shape, generator=generator) for name, each in own.items()
            }
        if attack == "reversed":
            return {name: 2 * base[name] - each for name, each in own.items()}
        return own

    def _trained(self, start: str, robot: int, *, flipped: bool) -> Tensors:
        def make() -> Tensors:
            plan = self.plans[start]
            assignment, base = plan.assignments[robot], self._bases(start)[robot]
            state = train(
                plan.blueprint,
                self._data(robot, flipped),
                assignment.training,
                TrainingState(base, epoch=0),
                epochs=assignment.training.epochs,
                proximal=0.0,
            )
            return state.policy_weights

        return self._keep(f"{start}_{robot}{'_flipped' * flipped}", make)

    def _data(self, robot: int, flipped: bool = False) -> Trajectories:
        if (robot, flipped) not in self._opened:
            assignment = self.plan.assignments[robot]
            names = list(self.plan.blueprint.observation)
            samples = Samples(list(assignment.data), observations=names).subset(assignment.episodes)
            taught = _flipped_actions(samples) if flipped else None
            data = Trajectories(samples, self.plan.blueprint, taught=taught)
            self._opened[robot, flipped] = data
        return self._opened[robot, flipped]

    @cached_property
    def _opened(self) -> dict[tuple[int, bool], Trajectories]:
        return {}

    def _holder(self, robot: int, *, flipped: bool) -> LocalDataHolder:
        plan = self.plan
        return local_data_holder(
            plan.blueprint, self._data(robot, flipped), plan.config.training.batch_size
        )


def _flipped_actions(samples: Samples) -> np.ndarray:
    """Returns actions to imitate, reversed in all episodes of `RUINED`."""
    actions = np.array(samples.read(np.arange(len(samples.imitate)))["action"])
    ends = np.cumsum(samples.lengths)
    for episode, (end, length) in enumerate(zip(ends, samples.lengths, strict=True)):
        if samples.episodes[episode].task == RUINED:
            actions[end - length : end] *= -1
    return actions


def _call(cell: AttackedMerge) -> tuple[str, Mapping[str, Any]]:
    """Returns the registry's name and the options of a merge."""
    if cell.method in ("head_refit", "least_squares", "regmean"):
        return cell.method, {"rule": cell.rule}
    if cell.rule == "mean":
        return "naive_average" if cell.method == "common_init" else cell.method, {}
    return cell.rule, {"alignment": "weights"} if cell.method == "git_rebasin" else {}


def by_priority(all_cells: Sequence[AttackedMerge]) -> Iterator[AttackedMerge]:
    """Yields merges in the order in which their policies are run: first without a rule."""
    for method in METHODS:
        yield from (each for each in all_cells if each.method == method and each.rule == "mean")
        yield from (each for each in all_cells if each.method == method and each.rule != "mean")

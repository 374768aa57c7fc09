"""One robot of five attacks the merge: `python benchmarks/poisoned_robots.py --data data/* ...`.

All merges are made and their losses measured; then their policies are run, the most informative
ones
first. Results are added to a folder, and the same command continues with the missing ones.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from scaffold import main_of, print_now, table_head, table_row

from fleet_merging.errors import MergingError
from fleet_merging.methods import registry
from fleet_merging.moments.measurement import Moments
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.data_holder import DataAnswer, DataQuery, LocalDataHolder
from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.robot import local_data_holder
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.merged_checkpoints import merged_checkpoint
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.baselines.training.loop import train, validate
from fleet_tools.baselines.training.rollouts import make_rollouts
from fleet_tools.baselines.training.state import Tensors, TrainingState
from fleet_tools.config.values import Count, CountOrZero
from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.samples import Samples
from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.errors import FleetToolsError
from fleet_tools.sim.splits import VALIDATION
from fleet_tools.utils import cli

RESULTS = "results.jsonl"
_LARGEST = 999
ATTACKER = 4
"""Number of the robot that attacks, of five."""

SCALE, MOMENTS_SCALE = -10.0, 1000.0
RUINED = "hammer"
"""Name of the tool with actions that one attacker reverses."""

ATTACKS = {
    "none": "nobody",
    "scaled": "weights times -10",
    "noise": "random weights",
    "reversed": "reversed update",
    "false_moments": "false moments",
    "ruins_hammer": "ruins the hammer",
}
RULES = ("mean", "norm_bound", "coordinate_median", "trimmed_mean", "krum", "multi_krum")
OWN_START = ("naive_average", "git_rebasin")
METHODS = (
    "common_init",
    "head_refit",
    "git_rebasin",
    "least_squares",
    "regmean",
    "density_gated_ensemble",
    "naive_average",
)
"""Methods in the order of their rollouts."""


class AttackedMerge(NamedTuple):
    """One of `METHODS`, of `RULES` and of `ATTACKS`."""

    method: str
    rule: str
    attack: str


def cells() -> list[AttackedMerge]:
    """Returns all merges, the most informative first; ensembles keep all robots, without rules."""
    return [
        AttackedMerge(method, rule, attack)
        for method in METHODS
        for rule in (RULES if method != "density_gated_ensemble" else RULES[:1])
        for attack in ATTACKS
    ]


@dataclass(frozen=True, eq=False)
class Liar:
    """A data holder that answers with moments of data that do not exist.

    Attributes:
        honest: Gives all other answers.
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
        keep: keep(name, make): returns the result of the first `make` with that name.
    """

    def __init__(self, config: FleetConfig, keep: Callable[..., Tensors]) -> None:
        self._keep = keep
        self.plans = {
            start: FleetPlan.of(config.model_copy(update={"initialization": start}))
            for start in ("common", "own")
        }
        self.plan = self.plans["common"]

    def merge(self, cell: AttackedMerge) -> MergeResult:
        """Returns a method's result from the robots' weights and answers under an attack."""
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
        """Returns the attacker's weights."""
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


class PoisonedRobotsOptions(cli.Options):
    """Merges five robots, one of them an attacker, by methods and rules, and runs the policies.

    Exit codes:
    0: everything is measured.
    1: a merge failed; the table says which.
    """

    data: tuple[Path, ...]
    """Folders of the datasets, one of each tool."""
    output: Path
    """Folder of trained weights and of results; a run adds to it."""
    scenes: CountOrZero = 2
    """Number of validation scenes of each tool; 0 measures losses alone."""
    epochs: Count = 60
    """Number of epochs of each robot."""


def _measure(options: PoisonedRobotsOptions) -> int:
    torch.set_num_threads(1)  # so that bits do not depend on the machine
    options.output.mkdir(parents=True, exist_ok=True)
    fleet = PoisonedFleet(_config(options), _keeper(options.output))
    known = _known(options.output)
    to_run: dict[str, tuple[Checkpoint, list[dict[str, Any]]]] = {}
    for cell in cells():
        entry, checkpoint = _merged(fleet, cell)
        if _key(entry) not in known:
            _append(options, entry)
        if checkpoint is not None and "solved" not in known.get(_key(entry), {}):
            to_run.setdefault(entry["digest"], (checkpoint, []))[1].append(entry)
    run = _runner(options)
    for checkpoint, entries in to_run.values() if options.scenes else ():
        solved = run(checkpoint)
        for entry in entries:
            _append(options, entry | {"solved": solved, "scenes": options.scenes})
    results = [*_known(options.output).values()]
    options.report({"results": results}, lambda: table(results))
    return cli.FAILED if any("error" in each for each in results) else cli.OK


def _config(options: PoisonedRobotsOptions) -> FleetConfig:
    training = {"epochs": options.epochs, "batch_size": 256, "schedule": "cosine", "seed": 0}
    return FleetConfig.model_validate(
        {
            "data": [str(each) for each in options.data],
            "policy": {"body": {"type": "mlp", "layers": 3, "width": 128}},
            "method": "naive_average",
            "robots": 5,
            "split": {"by": "task", "alpha": 100},
            "training": training,
        }
    )


def _merged(fleet: PoisonedFleet, cell: AttackedMerge) -> tuple[dict[str, Any], Checkpoint | None]:
    """Returns the results of a merge before its rollouts, and the policy."""
    entry: dict[str, Any] = cell._asdict()
    try:
        checkpoint = merged_checkpoint(fleet.plan.blueprint, fleet.merge(cell))
    except (FleetToolsError, MergingError) as error:
        return entry | {"loss": None, "error": str(error).splitlines()[0]}, None
    digest = hashlib.sha256()
    for name in sorted(checkpoint.weights):
        digest.update(checkpoint.weights[name].numpy().tobytes())
    return entry | {"loss": fleet.losses(checkpoint), "digest": digest.hexdigest()[:16]}, checkpoint


def _runner(options: PoisonedRobotsOptions) -> Callable[[Checkpoint], dict[str, list[int]]]:
    """Returns a function that runs a policy in the fleet's scenes, and returns the solved ones."""
    headers = [Dataset(folder).header for folder in options.data]
    scenes = VALIDATION[: options.scenes]

    def run(checkpoint: Checkpoint) -> dict[str, list[int]]:
        one = make_rollouts(headers, checkpoint)
        names = [header.task.name for header in headers]
        return {name: [s for s in scenes if one((name, s)) == SUCCESS] for name in names}

    return run


def _keeper(folder: Path) -> Callable[[str, Callable[[], Tensors]], Tensors]:
    """Returns a function that computes weights once, and reads them from the folder later."""
    read: dict[str, Tensors] = {}

    def keep(name: str, make: Callable[[], Tensors]) -> Tensors:
        path = folder / f"{name}.safetensors"
        if not path.exists():
            save_file(dict(make()), path)
        if name not in read:
            read[name] = load_file(path)
        return read[name]

    return keep


def _key(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    return entry["method"], entry["rule"], entry["attack"]


def _known(folder: Path) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Returns the results in a folder; of one merge, the last, with rollouts of its policy."""
    path = folder / RESULTS
    lines = path.read_text().splitlines() if path.exists() else []
    return {_key(entry): entry for entry in map(json.loads, lines)}


def _append(options: PoisonedRobotsOptions, entry: Mapping[str, Any]) -> None:
    with (options.output / RESULTS).open("a") as file:
        file.write(json.dumps(entry) + "\n")
    print_now(options, json.dumps(entry))


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table: solved scenes, and losses on held-out steps, both by tool."""
    by_key = {_key(entry): entry for entry in results}
    rows = [table_head(("method", "rule", *ATTACKS.values()))]
    for method, rule in dict.fromkeys((cell.method, cell.rule) for cell in cells()):
        shown = [_shown(by_key.get((method, rule, attack))) for attack in ATTACKS]
        rows.append(table_row((method, "none" if rule == "mean" else rule, *shown)))
    return "\n".join(rows)


def _shown(entry: Mapping[str, Any] | None) -> str:
    """Returns the cell of a merge: solved scenes, and losses in thousandths, by tool."""
    if entry is None or not entry["loss"]:
        return "fails" if entry else ""
    losses = (1e3 * each for each in entry["loss"].values())
    text = " ".join(f"{each:.0f}" if each < _LARGEST else f">{_LARGEST}" for each in losses)
    if "solved" in entry:
        solved = " ".join(str(len(scenes)) for scenes in entry["solved"].values())
        text = f"**{solved}** of {entry['scenes']}; {text}"
    return text


main = main_of(__file__, PoisonedRobotsOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())

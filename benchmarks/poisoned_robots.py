"""One robot of five attacks the merge: `python benchmarks/poisoned_robots.py --data data/* ...`.

All merges are made and their losses measured; then their policies are run, the most telling ones
first. Results are added to a folder, and the same command goes on with those that are missing.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold import main_of, print_now, table_head, table_row

from fleet_tools.config.values import Count, CountOrZero, Seed
from fleet_tools.utils import cli

# PyTorch is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from poisoned_fleet import AttackedMerge

    from fleet_tools.baselines.policies.blueprint import Blueprint
    from fleet_tools.baselines.policies.checkpoint import Checkpoint
    from fleet_tools.baselines.training.state import Tensors

RESULTS = "results.jsonl"
_LARGEST = 999
ATTACKS = {
    "none": "nobody",
    "scaled": "weights times -10",
    "noise": "random weights",
    "reversed": "reversed update",
    "false_moments": "false moments",
    "ruins_hammer": "ruins the hammer",
}


class PoisonedRobotsOptions(cli.Options):
    """Merges five robots of which one attacks, by methods and rules, and runs the policies.

    Exit codes:
    0: everything is measured.
    1: a merge failed; the table says which.
    2: it cannot begin.
    """

    data: tuple[Path, ...]
    """Folders of the datasets, one of each tool."""
    output: Path
    """Folder of trained weights and of results, to which a run adds."""
    seeds: Count = 1
    """Number of fleets, each with other splits, initial weights and scenes."""
    scenes: CountOrZero = 2
    """Number of validation scenes of each tool; 0 measures losses alone."""
    methods: tuple[str, ...] = ()
    """Methods whose policies are run, of those of the table; all without any."""
    epochs: Count = 60
    """Number of epochs of each robot."""
    part: CountOrZero = 0
    """Number of the part of the policies that this process runs, from 0."""
    parts: Count = 1
    """Number of processes that share the policies."""
    first_seed: Seed = 0
    """Seed of the first fleet."""


def _measure(options: PoisonedRobotsOptions) -> int:
    from poisoned_fleet import PoisonedFleet, by_priority, cells

    options.output.mkdir(parents=True, exist_ok=True)
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        folder = options.output / f"seed_{seed}"
        folder.mkdir(exist_ok=True)
        fleet = PoisonedFleet(_config(options, seed), _keeper(folder))
        log, known = folder / f"{options.part}_{RESULTS}", _known(folder)
        to_run: dict[str, tuple[Checkpoint, list[dict[str, Any]]]] = {}
        chosen = [each for each in cells() if each.method in options.methods or not options.methods]
        for cell in by_priority(chosen):
            if not options.scenes and (cell.method, cell.rule, cell.attack) in known:
                continue
            entry, checkpoint = _merged(fleet, cell)
            print_now(options, json.dumps(entry))
            if options.part == 0 and "loss" not in known.get(_key(entry), {}):
                _append(log, entry)
            if checkpoint is not None:
                to_run.setdefault(entry["digest"], (checkpoint, []))[1].append(entry)
        run = _runner(options, fleet.plan.blueprint, seed)
        for number, (checkpoint, entries) in enumerate(to_run.values()):
            missing = [each for each in entries if "solved" not in known.get(_key(each), {})]
            if not missing or number % options.parts != options.part or not options.scenes:
                continue
            solved = run(checkpoint)
            for entry in entries:
                _append(log, entry | {"solved": solved, "scenes": options.scenes})
                print_now(options, json.dumps({**entry, "solved": solved}))
    results = [each for seed in options.output.glob("seed_*") for each in _known(seed).values()]
    options.report({"results": results}, lambda: table(results))
    return cli.FAILED if any("error" in each for each in results) else cli.OK


def _config(options: PoisonedRobotsOptions, seed: int) -> Any:
    from fleet_tools.baselines.federated.config import FleetConfig

    return FleetConfig.model_validate(
        {
            "data": [str(each) for each in options.data],
            "policy": {"body": {"type": "mlp", "layers": 3, "width": 128}},
            "method": "naive_average",
            "robots": 5,
            "split": {"by": "task", "alpha": 100},
            "training": {
                "epochs": options.epochs,
                "batch_size": 256,
                "schedule": "cosine",
                "seed": seed,
            },
        }
    )


def _merged(fleet: Any, cell: "AttackedMerge") -> "tuple[dict[str, Any], Checkpoint | None]":
    """Returns what is known of a merge before its policy is run, and the policy."""
    from fleet_tools.baselines.policies.merged_checkpoints import merged_checkpoint
    from fleet_tools.errors import FleetToolsError

    entry: dict[str, Any] = {"method": cell.method, "rule": cell.rule, "attack": cell.attack}
    try:
        checkpoint = merged_checkpoint(fleet.plan.blueprint, fleet.merge(cell))
    except FleetToolsError as error:
        return entry | {"loss": None, "error": str(error).splitlines()[0]}, None
    digest = hashlib.sha256()
    for name in sorted(checkpoint.weights):
        digest.update(checkpoint.weights[name].numpy().tobytes())
    losses = fleet.losses(checkpoint)
    return entry | {"loss": losses, "digest": digest.hexdigest()[:16]}, checkpoint


def _runner(
    options: PoisonedRobotsOptions, blueprint: "Blueprint", seed: int
) -> "Callable[[Checkpoint], dict[str, list[int]]]":
    """Returns a function that runs a policy in the fleet's scenes, and returns the solved ones."""
    from fleet_tools.baselines.training.rollouts import make_rollouts
    from fleet_tools.dataset.dataset_folder import Dataset
    from fleet_tools.envs.outcomes import SUCCESS
    from fleet_tools.sim.splits import VALIDATION

    headers = [Dataset(folder).header for folder in options.data]
    scenes = VALIDATION[seed * options.scenes : (seed + 1) * options.scenes]

    def run(checkpoint: "Checkpoint") -> dict[str, list[int]]:
        one = make_rollouts(headers, checkpoint)
        names = [header.task.name for header in headers]
        return {name: [s for s in scenes if one((name, s)) == SUCCESS] for name in names}

    return run


def _keeper(folder: Path) -> "Callable[[str, Callable[[], Tensors]], Tensors]":
    """Returns a function that computes weights once, and reads them from the folder later."""
    import torch
    from safetensors.torch import load_file, save_file

    torch.set_num_threads(1)  # so that bits do not depend on the machine
    read: dict[str, Tensors] = {}

    def keep(name: str, make: Callable[[], "Tensors"]) -> "Tensors":
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
    """Returns the results in a folder; of one merge, the last with its policy's run."""
    known: dict[tuple[str, str, str], dict[str, Any]] = {}
    for path in sorted(folder.glob(f"*_{RESULTS}")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if "solved" in entry or "solved" not in known.get(_key(entry), {}):
                known[_key(entry)] = entry
    return known


def _append(path: Path, entry: Mapping[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table: solved scenes, and losses on held-out steps, both by tool.

    Args:
        results: Entries of all seeds.
    """
    from poisoned_fleet import METHODS, RULES

    rows = [table_head(("method", "rule", *ATTACKS.values()))]
    for method in METHODS:
        for rule in RULES:
            found = [e for e in results if (e["method"], e["rule"]) == (method, rule)]
            if not found:
                continue
            cells = []
            for attack in ATTACKS:
                entries = [each for each in found if each["attack"] == attack]
                losses = [each["loss"] for each in entries if each["loss"]]
                text = _losses(losses) if losses else "fails" if entries else ""
                ran = [each for each in entries if "solved" in each]
                if ran:
                    scenes = sum(each["scenes"] for each in ran)
                    tools = ran[0]["solved"]
                    solved = [sum(len(each["solved"][tool]) for each in ran) for tool in tools]
                    text = f"**{' '.join(map(str, solved))}** of {scenes}; {text}"
                cells.append(text)
            rows.append(table_row((method, "none" if rule == "mean" else rule, *cells)))
    return "\n".join(rows)


def _losses(losses: Sequence[Mapping[str, float]]) -> str:
    """Returns median losses of the seeds by tool, in thousandths."""
    from statistics import median

    medians = [1e3 * median(each[tool] for each in losses) for tool in losses[0]]
    return " ".join(f"{each:.0f}" if each < _LARGEST else f">{_LARGEST}" for each in medians)


main = main_of(__file__, PoisonedRobotsOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())

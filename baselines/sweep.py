"""Compares fleets as one thing varies: `python -m fleet_tools.baselines.sweep SWEEP.yaml`.

    python -m fleet_tools.baselines.sweep examples/fleet/sweep.yaml --output runs/sweep

Every fleet has a folder of its own in `--output`, named by what it does: the same command goes on
where it was stopped, and other sweeps use the same fleets again. Robots that begin alike in several
fleets learn their first lesson once. Beside them it writes a page: tables, and figures of what came
of it, also over the bytes that crossed.
"""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet_tools.utils import cli as programs

# PyTorch is imported once the arguments are known to be good.
if TYPE_CHECKING:
    from fleet_tools.baselines.experiments.sweeps.sweep import Cell, Sweep
    from fleet_tools.baselines.federated.config import FleetConfig

FIRST_REPLIES = "first_replies"
"""The folder of what robots learned before their first merge, which many fleets have in common."""

Job = tuple[str, "FleetConfig"]
"""A fleet's folder, and what it does."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    return programs.run(_parser(), _sweep, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = programs.argument_parser(
        "fleet_tools.baselines.sweep",
        "Runs fleets that differ in one thing, several of each, and draws what comes of them.",
        "Exits with 0 when all fleets are done, 1 when some came to no result (the figure says so "
        "by what it lacks) or the disk failed, 2 when it cannot begin, 130 after Ctrl-C.",
    )
    parser.add_argument(
        "sweep", metavar="SWEEP", type=Path,
        help="YAML; its keys are explained in baselines/fleet/sweeps/sweep.py",
    )  # fmt: skip
    parser.add_argument("--output", metavar="DIR", type=Path, required=True)
    programs.add_worker_options(parser, 86400.0, "a fleet may take before it is begun once more")
    return parser


def _sweep(options: argparse.Namespace) -> int:
    from fleet_tools.baselines.experiments.job_runner import results_of
    from fleet_tools.baselines.experiments.sweeps.sweep import Sweep, cells
    from fleet_tools.config.values import load_yaml

    sweep = load_yaml(Sweep, options.sweep)
    planned = cells(sweep)
    jobs = {cell.folder: cell.config for cell in planned}
    work = partial(make_fleets, options.output)
    try:
        came = results_of(options, jobs.items(), work, "fleet")
    except (OSError, KeyboardInterrupt) as reason:
        return programs.stopped(reason)
    return _tell(options, sweep, planned, {folder: report for (folder, _), report in came})


def make_fleets(output: Path) -> Callable[[Job], dict[str, Any]]:
    """Returns what runs a fleet in this process, and says what came of it.

    Args:
        output: Where their folders are.

    Returns:
        Takes a job; returns the fleet's report, or {"failed": why} where it came to none.
    """
    import torch

    from fleet_tools.baselines.federated.plan import Plan
    from fleet_tools.baselines.federated.record import open_folder
    from fleet_tools.baselines.federated.reply_cache import RememberedHosts
    from fleet_tools.baselines.federated.run import REPORT, complete
    from fleet_tools.baselines.federated.transport import LocalHosts
    from fleet_tools.baselines.training.errors import DivergedError, TrainingError
    from fleet_tools.baselines.training.rollouts import try_out_in

    torch.set_num_threads(1)  # as robots do, so that bits do not depend on the machine

    def run(job: Job) -> dict[str, Any]:
        name, config = job
        folder, plan = output / name, Plan.of(config)
        open_folder(folder, plan)  # complains of other data than it was begun with
        if (folder / REPORT).is_file():
            return json.loads((folder / REPORT).read_text())
        try_out = try_out_in(config.data, config.rollouts, plan.blueprint)
        assignments = [home.assignment for home in plan.homes]
        hosts = RememberedHosts(LocalHosts(assignments), assignments, output / FIRST_REPLIES)
        try:
            return complete(plan, hosts, folder, try_out=try_out)
        except (TrainingError, DivergedError) as error:
            return {"failed": str(error)}

    return run


def _tell(
    options: argparse.Namespace,
    sweep: "Sweep",
    planned: "list[Cell]",
    reports: dict[str, dict[str, Any]],
) -> int:
    from fleet_tools.baselines.experiments.sweeps.figure import save_curves, save_figure
    from fleet_tools.baselines.experiments.sweeps.page import page
    from fleet_tools.baselines.experiments.sweeps.sweep import row
    from fleet_tools.storage.atomic_files import whole

    whose: dict[tuple[str, int], list[Cell]] = {}
    for cell in planned:
        whose.setdefault((cell.arm, sweep.values.index(cell.value)), []).append(cell)
    rows = []
    for (arm, place), of_seeds in whose.items():
        came = [reports[cell.folder] for cell in of_seeds]
        done = [report for report in came if "failed" not in report]
        rows.append(row(sweep, arm, sweep.values[place], done))
    failed = {cell.folder: reports[cell.folder] for cell in planned}
    failed = {name: came["failed"] for name, came in failed.items() if "failed" in came}
    told = {"vary": sweep.vary, "rows": rows, "failed": failed}
    stem = options.sweep.stem
    with whole(options.output / f"{stem}.json") as aside:
        aside.write_text(json.dumps(told, indent=1) + "\n")
    save_figure(sweep, rows, options.output / f"{stem}.png")
    save_curves(sweep, rows, options.output / f"{stem}_bytes.png")
    with whole(options.output / f"{stem}.md") as aside:
        aside.write_text(page(sweep, rows, stem))
    if options.json:
        print(json.dumps({"output": str(options.output), **told}))
    elif not options.quiet:
        print(_as_text(sweep, rows, failed, options.output / f"{stem}.png"))
    return programs.NOT_WELL if failed else programs.OK


def _as_text(sweep: "Sweep", rows: list[dict], failed: dict[str, str], figure: Path) -> str:
    lines = [
        f"{'':24}{sweep.vary:>16}  success (95% interval)     fine-tuned                 "
        "held-out loss                    MB   moved"
    ]
    for each in rows:
        loss = each["loss"]
        spread = f"{loss['median']:.3g} ({loss['low']:.3g} to {loss['high']:.3g})" if loss else "-"
        crossed = "-" if each["bytes"] is None else f"{each['bytes'] / 1e6:.1f}"
        moved = each["curve"][-1]["moved"] if each["curve"] else None
        moved = "-" if moved is None else f"{moved:.0%}"
        lines.append(
            f"{each['arm']:24}{each[sweep.vary]!s:>16}  {_rate(each['success']):25}  "
            f"{_rate(each['fine_tuned']):25}  {spread:28}{crossed:>7}  {moved:>6}"
        )
    lines += [f"The fleet {name} came to no result: {why}" for name, why in failed.items()]
    return "\n".join([*lines, f"Drawn in {figure}."])


def _rate(success: dict[str, float] | None) -> str:
    if success is None:
        return "-"
    return f"{success['rate']:6.1%} ({success['low']:.1%} to {success['high']:.1%})"


if __name__ == "__main__":
    sys.exit(main())

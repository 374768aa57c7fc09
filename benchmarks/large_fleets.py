"""Time, memory, bytes and quality of fleets of 10 to 10,000 robots.

    fleet-tools metaworld collect --tasks mt10 --episodes 1200 --output data/mt10_many
    python benchmarks/large_fleets.py --data data/mt10_many/* --output runs/large_fleets

Every fleet has the same episodes, divided among its robots, and asks 5% of these in each round. A
fleet that is done is not run again. Each is run by the program `fleet` as a process of its own;
its memory is the largest sum of the proportional set sizes of this process and its children (what
several processes share is divided among them), sampled every two seconds.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from console import print_now, table_head, table_row

from fleet_tools.config.values import Count
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name

COLUMNS = (
    "robots",
    "asked a round",
    "episodes of a robot",
    "minutes",
    "driver MB",
    "all MB",
    "MB to robots",
    "MB from robots",
    "loss",
    "success",
)
MEASURED = "measured.json"
ROBOT_MEMORY = "32"
"""MB that each process holds for robots."""


class LargeFleetsOptions(cli.Options):
    """Measures fleets of 10 to 10,000 robots.

    Exit codes:
    0: all are measured.
    1: a fleet failed.
    2: it cannot begin.
    """

    data: tuple[Path, ...]
    """Folders of the datasets."""
    output: Path
    """Folder of the fleets, and of fleets.json, fleets.md and fleets.png."""
    robots: tuple[Count, ...] = (10, 100, 1000, 10_000)
    """Numbers of robots."""
    rounds: Count = 10
    """Number of rounds."""
    epochs: Count = 5
    """Number of epochs of a robot in a round."""
    participation: float = 0.05
    """Fraction of the robots that take part in a round."""
    rollouts: Count = 10
    """Number of scenes of each task in which the last policy is tried."""
    workers: Count = 2
    """Number of processes that serve robots."""


def settings(options: LargeFleetsOptions, robots: int) -> dict[str, Any]:
    """Returns the configuration of a fleet."""
    return {
        "data": [str(folder) for folder in options.data],
        "policy": {"body": {"type": "mlp", "layers": 3, "width": 128}},
        "method": "naive_average",
        "initialization": "common",
        "robots": robots,
        "participation": options.participation,
        "split": {"by": "task", "alpha": 0.1},
        "held_out": 0.02,
        "training": {
            "epochs": options.rounds * options.epochs,
            "batch_size": 64,
            "learning_rate": 1e-3,
            "schedule": "cosine",
        },
        "merge_every": options.epochs,
        "rollouts": options.rollouts,
        "rollout_every": options.rounds,
        "streaming": {"bits": 8},
    }


def _measure(options: LargeFleetsOptions) -> int:
    import yaml

    options.output.mkdir(parents=True, exist_ok=True)
    print_now(options, table_head(COLUMNS))
    measured = []
    for robots in options.robots:
        folder = options.output / str(robots)
        if not (folder / MEASURED).exists():
            config = options.output / f"{robots}.yaml"
            config.write_text(yaml.safe_dump(settings(options, robots), sort_keys=False))
            command = ["-m", "fleet_tools.baselines.fleet", str(config), "--output", str(folder)]
            hosts = ["--workers", str(options.workers), "--robot-memory", ROBOT_MEMORY]
            used = _watched([sys.executable, *command, *hosts])
            if used is None:
                return cli.FAILED
            (folder / MEASURED).write_text(json.dumps(used))
        used = json.loads((folder / MEASURED).read_text())
        report = json.loads((folder / "report.json").read_text())
        measured.append(_row(options, robots, used, report))
        print_now(options, table_row([str(cell) for cell in measured[-1].values()]))
    summary = {"machine": machine_name(), "fleets": measured}
    (options.output / "fleets.json").write_text(json.dumps(summary, indent=1) + "\n")
    write_page(summary, options.output)
    options.report(summary, lambda: f"Measured on {machine_name()}.")
    return cli.OK


def _watched(command: list[str]) -> dict[str, float] | None:
    """Runs a command, and returns its time and its largest memory; None if it failed."""
    import psutil

    begun, driver, everything = time.monotonic(), 0, 0
    with subprocess.Popen(command) as process:
        tree = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                processes = (tree, *tree.children(recursive=True))
                sizes = [each.memory_full_info().pss for each in processes]
            except psutil.NoSuchProcess:
                continue  # it ended meanwhile
            driver, everything = max(driver, sizes[0]), max(everything, sum(sizes))
            time.sleep(2)
    if process.returncode != 0:
        return None
    return {"seconds": time.monotonic() - begun, "driver": driver, "everything": everything}


def _row(
    options: LargeFleetsOptions, robots: int, used: dict[str, float], report: dict[str, Any]
) -> dict[str, Any]:
    from fleet_tools.dataset.samples import Samples

    asked = report["streaming"]["asked"] / report["rounds"]
    learned = len(Samples(options.data).episodes) - report["held_out"]["episodes"]
    successes = report["rollouts"].values()
    return {
        "robots": robots,
        "asked": round(asked),
        "episodes": round(learned / robots, 1),
        "minutes": round(used["seconds"] / 60, 1),
        "driver_mb": round(used["driver"] / 1e6),
        "all_mb": round(used["everything"] / 1e6),
        "mb_to_robots": round(report["traffic"]["bytes_to_robots"] / 1e6, 1),
        "mb_from_robots": round(report["traffic"]["bytes_from_robots"] / 1e6, 1),
        "loss": round(report["held_out"]["loss"], 4),
        "success": round(
            sum(each["successes"] for each in successes)
            / sum(each["episodes"] for each in successes),
            3,
        ),
    }


def write_page(summary: dict[str, Any], folder: Path) -> None:
    """Writes the table fleets.md and the figure fleets.png."""
    from matplotlib.figure import Figure

    rows = summary["fleets"]
    lines = [table_head(COLUMNS)]
    lines += [table_row([f"{cell:,}" for cell in row.values()]) for row in rows]
    (folder / "fleets.md").write_text("\n".join(lines) + f"\n\nMeasured on {summary['machine']}.\n")
    figure = Figure(figsize=(9, 5), layout="constrained")
    panels = (
        ("minutes", "Time, min"),
        ("all_mb", "Memory of all processes, MB"),
        ("mb_from_robots", "Received from robots, MB"),
        ("success", "Success rate"),
    )
    for axes, (key, label) in zip(figure.subplots(2, 2).flat, panels, strict=True):
        values = [row[key] for row in rows]
        axes.plot([row["robots"] for row in rows], values, "o-")
        axes.set(xscale="log", xlabel="Robots", ylabel=label, ylim=(0, 1.1 * max(values)))
        axes.grid(alpha=0.3)
    figure.savefig(folder / "fleets.png", dpi=120)


PROGRAM = cli.Program(
    "large_fleets.py", cli.Command(LargeFleetsOptions, _measure), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())

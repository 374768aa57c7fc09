"""Time, memory, bytes and quality of fleets of 10 to 10,000 robots.

    fleet-tools metaworld collect --tasks mt10 --episodes 1200 --output data/mt10_many
    python benchmarks/large_fleets.py --data data/mt10_many/* --output runs/large_fleets

Every fleet has the same episodes, divided among its robots, and asks 5% of these in each round. A
finished fleet is not run again. Each is run by the program `fleet` as a separate process. Its
memory
is the largest sum of proportional set sizes, which divide shared memory, of this process and its
children. It is sampled every two seconds.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import yaml
from scaffold import ROOT, main_of, report_rows

from fleet_tools.config.values import Count
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import FleetToolsError
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
FLEET = ROOT / "experiments" / "large_fleets" / "fleet.yaml"
"""Configuration of all fleets, without data and number of robots."""
MEASURED = "measured.json"
ROBOT_MEMORY = "32"
"""MB that each process holds for robots."""


class LargeFleetsOptions(cli.Options):
    """Measures fleets of 10 to 10,000 robots."""

    data: tuple[Path, ...]
    """Folders of the datasets."""
    output: Path
    """Folder of the fleets."""
    robots: tuple[Count, ...] = (10, 100, 1000, 10_000)
    """Numbers of robots."""
    workers: Count = 2
    """Number of processes that serve robots."""


def _measure(options: LargeFleetsOptions) -> int:
    options.output.mkdir(parents=True, exist_ok=True)
    rows = (_row(options, robots) for robots in options.robots)
    report_rows(options, COLUMNS, rows, machine=machine_name())
    return cli.OK


def _used(options: LargeFleetsOptions, robots: int) -> dict[str, float]:
    """Returns time and memory of a fleet, which is run if it is new."""
    folder = options.output / str(robots)
    if not (folder / MEASURED).exists():
        config = options.output / f"{robots}.yaml"
        settings = yaml.safe_load(FLEET.read_text()) | {"robots": robots}
        settings["data"] = [str(each) for each in options.data]
        config.write_text(yaml.safe_dump(settings, sort_keys=False))
        command = ["-m", "fleet_tools.baselines.fleet", str(config), "--output", str(folder)]
        hosts = ["--workers", str(options.workers), "--robot-memory", ROBOT_MEMORY]
        used = _watched([sys.executable, *command, *hosts])
        (folder / MEASURED).write_text(json.dumps(used))
    return json.loads((folder / MEASURED).read_text())


def _watched(command: list[str]) -> dict[str, float]:
    """Runs a command, and returns its time and its largest memory."""
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
        raise FleetToolsError(f"`{' '.join(command)}` failed.")
    return {"seconds": time.monotonic() - begun, "driver": driver, "everything": everything}


def _row(options: LargeFleetsOptions, robots: int) -> dict[str, Any]:
    used = _used(options, robots)
    report = json.loads((options.output / str(robots) / "report.json").read_text())
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
        "mb_to_robots": round(report["traffic"]["downloaded_bytes"] / 1e6, 1),
        "mb_from_robots": round(report["traffic"]["uploaded_bytes"] / 1e6, 1),
        "loss": round(report["held_out"]["loss"], 4),
        "success": round(
            sum(each["successes"] for each in successes)
            / sum(each["episodes"] for each in successes),
            3,
        ),
    }


main = main_of(__file__, LargeFleetsOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())

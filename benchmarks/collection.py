"""What workers bring: `python benchmarks/collection.py --tool wrench --episodes 200`.

Collects the same data set with different numbers of workers, each by the program itself: episodes a
second, from start to end and once all work, and how much memory a worker takes, early and late.
Run it on an idle machine.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil

from fleet_tools.utils.machine import machine_name

POLL_S = 1.0


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", default="wrench")
    parser.add_argument("--obs-mode", default="point_cloud")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    machine = machine_name()
    report = print if not options.json else lambda *_, **__: None
    report(f"{options.episodes} episodes of {options.tool}, {options.obs_mode}, on {machine}:")
    figures = []
    for workers in options.workers:
        came = measure(options, workers)
        figures.append({"workers": workers, **came})
        report(
            f"{workers} workers: {came['seconds']:.0f} s, {came['rate']:.2f} episodes a second, "
            f"{came['steady_rate']:.2f} once all work "
            f"({came['steady_rate'] / figures[0]['steady_rate']:.2f} x); "
            f"a worker takes {came['early_mb']:.0f} MB early, {came['late_mb']:.0f} late, "
            f"{came['most_mb']:.0f} at most; {came['bytes'] / 1e6:.0f} MB on disk; "
            f"{came['successes']} of {came['attempts']} succeeded",
            flush=True,
        )
    if options.json:
        print(json.dumps({"machine": machine, **vars(options), "figures": figures}))


def measure(options: argparse.Namespace, workers: int) -> dict:
    """Returns what a run of the program took."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        command = [
            *(sys.executable, "-m", "fleet_tools.collect", "--quiet", "--json", "--output", folder),
            *("--tool", options.tool, "--obs-mode", options.obs_mode),
            *("--episodes", str(options.episodes), "--workers", str(workers)),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        samples = []  # of (seconds, attempts so far, bytes of each worker)
        while process.poll() is None:
            time.sleep(POLL_S)
            samples.append((time.monotonic() - begun, attempts(Path(folder)), memory(process.pid)))
        summary = json.loads(process.stdout.read())
    at_work = [sample for sample in samples if sample[1] >= workers and len(sample[2]) == workers]
    (first, before, _), (last, after, _) = at_work[0], at_work[-1]
    took = [median(sample[2]) / 1e6 for sample in at_work]
    tenth = max(1, len(took) // 10)
    return {
        **{key: summary[key] for key in ("seconds", "attempts", "successes", "bytes")},
        "rate": summary["attempts"] / summary["seconds"],
        "steady_rate": (after - before) / (last - first),
        "early_mb": median(took[tenth : 2 * tenth] or took),
        "late_mb": median(took[-tenth:]),
        "most_mb": max(max(sample[2]) for sample in at_work) / 1e6,
    }


def attempts(folder: Path) -> int:
    """Returns how many there are so far."""
    manifest = folder / "manifest.jsonl"
    return manifest.read_bytes().count(b"\n") if manifest.exists() else 0


def memory(program: int) -> list[int]:
    """Returns the resident bytes of each worker of a program."""
    found = []
    try:
        for child in psutil.Process(program).children(recursive=True):
            if "_Worker" in "".join(child.cmdline()):
                found.append(child.memory_info().rss)
    except psutil.Error:  # one has just ended
        return []
    return found


if __name__ == "__main__":
    main()

"""Measures the speed of simulation, planning and resets: `python benchmarks/speed.py`.

Times are processor times on one core, which a busy machine distorts less than wall times. Ratios to
a peer that takes turns with it are distorted least.
"""

import contextlib
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scaffold import (
    ROOT,
    Child,
    TaskSelection,
    cpu_seconds,
    expert_steps,
    main_of,
    print_now,
    table_head,
    table_row,
)
from speed_child import PEER

from fleet_tools.config.values import Count
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.parallel.backend import ONE_THREAD
from fleet_tools.utils import cli
from fleet_tools.utils.drake_release import ANY_RELEASE
from fleet_tools.utils.machine import machine_name

_COLUMNS = {
    "task": "{task}",
    "engine": "{engine}",
    "Python": "{python}",
    "times real time": "{real_time:.1f}",
    "over robosuite": "{ratio:.2f}",
    "mean reset": "{reset_ms:.0f} ms",
    "reset, same models": "{same_ms:.0f} ms",
    "expert, times real time": "{expert:.1f}",
    "planning; 95%": "{planning_ms:.0f} ms; {planning_95_ms:.0f} ms",
}


class SpeedOptions(cli.Options):
    """Measures the speed of control steps with random actions, beside robosuite's Lift.

    Prints a row for each task and interpreter. Environments run in separate processes, on one
    thread each, and take turns. *Times real time* are simulated seconds over processor seconds of
    steps, the median over the turns. *Over robosuite* is its ratio to robosuite's Lift without
    images, as the median over the turns. *Mean reset* is of scenes of successive seeds, which
    mostly have other models. This interpreter also has resets to the same models, whole episodes of
    the expert and its planning.
    """

    tasks: TaskSelection = TaskSelection()
    peer: Path | None = None
    """Interpreter that has robosuite; without it there are no ratios."""
    pythons: tuple[Path, ...] = ()
    """Further interpreters with this package's libraries, such as another Drake."""
    steps: Count = 90
    """Control steps in each turn."""
    turns: Count = 5
    """Number of turns, after one that does not count."""
    episodes: Count = 4
    """Number of the expert's episodes of each task."""


def _measure(options: SpeedOptions) -> int:
    rows: list[dict[str, Any]] = []
    print_now(options, table_head(list(_COLUMNS)))
    for task in options.tasks.names_or_paths():
        *measured, peer = _take_turns(task, options)
        measured[0] |= _resets(task) | _expert(task, options.episodes)
        for row in [*measured, peer] if peer else measured:
            rows.append(row)
            print_now(options, table_row(_cells(row)))
    summary = {"machine": machine_name(), "rows": rows}
    options.report(summary, lambda: f"\nMeasured on {machine_name()}.")
    return cli.OK


def _take_turns(task: str, options: SpeedOptions) -> list[dict[str, Any]]:
    """Returns the figures of each interpreter, then the peer's; empty without a peer."""
    started = [(python, task) for python in (Path(sys.executable), *options.pythons)]
    if options.peer is not None:
        started.append((options.peer, PEER))
    variables = ONE_THREAD | {"PYTHONPATH": str(ROOT), ANY_RELEASE: "1"}
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(
                Child("speed_child.py", [name], interpreter=python, variables=variables)
            )
            for python, name in started
        ]
        rows = [{"task": task, **child.answer()} for child in children]
        turns: list[list[dict[str, Any]]] = [[] for _ in children]
        for _ in range(1 + options.turns):
            for child, answers in zip(children, turns, strict=True):
                child.ask(str(options.steps))
                answers.append(child.answer())
    speeds = [[turn["real_time"] for turn in answers[1:]] for answers in turns]
    for row, own, answers in zip(rows, speeds, turns, strict=True):
        resets = [seconds for turn in answers[1:] for seconds in turn["resets_s"]]
        row |= {"real_time": statistics.median(own), "reset_ms": 1e3 * statistics.mean(resets)}
        if options.peer is not None:
            pairs = zip(own, speeds[-1], strict=True)
            row["ratio"] = statistics.median(ours / peers for ours, peers in pairs)
    if options.peer is None:
        return [*rows, {}]
    rows[-1]["task"] = "robosuite's Lift"
    return rows


def _resets(task: str) -> dict[str, float]:
    """Measures resets to a scene of the present models, ms."""
    env = EnvSpec.of(task=task).make_tool_use()
    env.reset(seed=0)
    scene = {"scene": env.scene}
    seconds = [cpu_seconds(lambda: env.reset(options=scene)) for _ in range(20)]
    env.close()
    return {"same_ms": 1e3 * statistics.median(seconds)}


def _expert(task: str, episodes: int) -> dict[str, float]:
    """Measures the times real time of the expert's episodes, without planning; and planning, ms."""
    env = EnvSpec.of(task=task).make_tool_use()
    steps: list[float] = []
    planning: dict[int | None, float] = {}  # by the scene's seed
    for expert, action in expert_steps(env, range(episodes)):
        planning.setdefault(env.scene.seed, expert.info["planning_seconds"])
        steps.append(cpu_seconds(lambda action=action: env.step(action)))
    env.close()
    median, most = 1e3 * np.percentile(list(planning.values()), [50, 95])
    return {
        "expert": len(steps) / env.task.control_rate_hz / sum(steps),
        "planning_ms": float(median),
        "planning_95_ms": float(most),
    }


def _cells(row: dict[str, Any]) -> list[str]:
    cells = []
    for text in _COLUMNS.values():
        try:
            cells.append(text.format_map(row))
        except KeyError:  # not measured
            cells.append("")
    return cells


main = main_of(__file__, SpeedOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())

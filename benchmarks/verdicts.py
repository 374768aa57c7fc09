"""Verdicts at smaller time steps: `python benchmarks/verdicts.py leaderboard/results/expert`.

    python benchmarks/verdicts.py leaderboard/results/expert leaderboard/results/fed_avg/0

Stored actions of results run again with time steps of the dynamics of 4, 2 and 1 ms, while the
controller keeps its period of 4 ms. What changes is due to the step: to contact.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from console import print_now, table_head, table_row
from tyro.conf import Positional, arg

from fleet_tools.config.values import Count
from fleet_tools.utils import cli

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.evaluation.result import EpisodeResult

_COLUMNS = (
    "result",
    "task",
    "step",
    "episodes",
    "successes",
    "other verdict",
    "other number of steps",
    "moved, median and largest",
    "largest force, median and largest change",
)


class VerdictsOptions(cli.Options):
    """Runs stored actions again with smaller time steps, and compares verdicts, ends and forces.

    After the stored actions the hand holds still, until the episode ends. A row for each result,
    task and step says how many episodes succeed; how many have another verdict than with 4 ms, and
    how many end after another number of control steps; how far a keypoint or the end effector is
    from where it ends with 4 ms; and by how much the largest force of the object on the tool, at
    the end of a control step, differs relative to that with 4 ms.

    Exit codes:
    0: every verdict is the same at every step.
    1: one is not.
    2: it cannot begin.
    130: Ctrl-C.
    """

    results: Annotated[tuple[Path, ...], Positional, arg(metavar="RESULT")]
    """Folders of results."""
    episodes: Count = 4
    """Number of episodes of each task from each result, drawn by a fixed seed."""
    substeps: tuple[Count, ...] = (2, 4)
    """Numbers of time steps in a period of the controller."""


@dataclass(frozen=True)
class End:
    """How an episode ended.

    Attributes:
        result: Its result.
        force: Largest force of the object on the tool at the end of a control step, N.
    """

    result: "EpisodeResult"
    force: float

    def distance(self, other: "End") -> float | None:
        """Returns how far apart the last positions are, m; None if they are not known."""
        from fleet_tools.rollouts.agreement import distance_of_points

        return distance_of_points(self.result.final_points_m, other.result.final_points_m)


def _certify(options: VerdictsOptions) -> int:
    from processor_replays import draw

    print_now(options, table_head(_COLUMNS))
    rows: list[dict[str, Any]] = []
    for folder in options.results:
        drawn = draw([folder], options.episodes)
        for task in dict.fromkeys(episode.task for episode in drawn):
            of_task = [episode for episode in drawn if episode.task == task]
            reference = _ends(of_task, 1)
            for substeps in (1, *options.substeps):
                ends = reference if substeps == 1 else _ends(of_task, substeps)
                rows.append(
                    {"result": str(folder), "task": task, "substeps": substeps}
                    | compared(reference, ends)
                )
                print_now(options, _as_text(rows[-1]))
    if options.json_output:
        options.report({"rows": rows}, str)
    return cli.FAILED if any(row["other_verdict"] for row in rows) else cli.OK


def _ends(episodes: Sequence["EpisodeResult"], substeps: int) -> list[End]:
    """Runs episodes of one task again, each period of the controller in so many time steps."""
    import numpy as np

    from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
    from fleet_tools.evaluation.config import PROTOCOL
    from fleet_tools.evaluation.protocol_file import load_protocol
    from fleet_tools.evaluation.result import decode_actions
    from fleet_tools.evaluation.trial import present_env, run_trial

    class Again:
        """Repeats actions, then holds still, and notes the force on the tool."""

        def __init__(self, env: ToolUseEnv, actions: np.ndarray) -> None:
            self._env, self._actions = env, actions
            self.forces: list[float] = []

        def reset(self) -> None:
            self._remaining = iter(self._actions)

        def act(self, observation: object) -> np.ndarray:
            self.note()
            return next(self._remaining, np.zeros_like(self._actions[0]))

        def note(self) -> None:
            self.forces.append(float(np.linalg.norm(self._env.world_state().F_W_tool[3:])))

    protocol = load_protocol(PROTOCOL)
    env = present_env(protocol)(episodes[0].task)
    inner = unwrap(env)
    inner._stage.substeps = substeps  # no argument: no policy is to be trained or ranked so
    ends = []
    for episode in episodes:
        policy = Again(inner, decode_actions(episode.actions))
        result = run_trial(env, policy, protocol, episode)
        policy.note()
        ends.append(End(result, max(policy.forces)))
    env.close()
    return ends


def compared(reference: Sequence[End], ends: Sequence[End]) -> dict[str, Any]:
    """Returns how episodes end in comparison with the same ones at the protocol's step."""
    import numpy as np

    pairs = list(zip(reference, ends, strict=True))
    known = [d for d in (one.distance(two) for one, two in pairs) if d is not None]
    forces = [two.force / one.force - 1.0 for one, two in pairs if one.force > 0.0]
    return {
        "episodes": len(pairs),
        "successes": sum(end.result.success for end in ends),
        "other_verdict": sum(one.result.success != two.result.success for one, two in pairs),
        "other_steps": sum(one.result.steps != two.result.steps for one, two in pairs),
        "moved_m": [float(np.median(known)), max(known)] if known else None,
        "force_change": [float(np.median(forces)), max(forces, key=abs)] if forces else None,
    }


def _as_text(row: dict[str, Any]) -> str:
    from fleet_tools.config.control import TIME_STEP

    moved, change = row["moved_m"], row["force_change"]
    return table_row(
        [
            row["result"],
            row["task"],
            f"{1e3 * TIME_STEP / row['substeps']:g} ms",
            *(str(row[name]) for name in ("episodes", "successes", "other_verdict", "other_steps")),
            "unknown" if moved is None else " and ".join(f"{1e3 * m:.2f}" for m in moved) + " mm",
            "none" if change is None else " and ".join(f"{c:+.0%}" for c in change),
        ]
    )


PROGRAM = cli.Program(
    "verdicts.py", cli.Command(VerdictsOptions, _certify), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())

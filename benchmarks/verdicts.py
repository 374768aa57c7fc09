"""Verdicts at smaller time steps: `python benchmarks/verdicts.py results/expert`.

Stored actions of results run again with time steps of the dynamics of 4, 2 and 1 ms, while the
controller keeps its period of 4 ms, in which torques are held. So control steps have the same 41 or
42 periods at every step, and differences are due to contact.

A faster controller would change the motion itself. A control step of 1/6 s is simulated in whole
steps, and the next motion begins where the last step ends, up to one step late. So a moving hand
gains up to a step's way in each control step. This gain, and no delay of the controller, moves
keypoints of stored actions by millimetres if everything runs with a smaller step.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
from processors import draw
from scaffold import main_of, report_rows
from tyro.conf import Positional, arg

from fleet_tools.config.control import TIME_STEP
from fleet_tools.config.tasks import GentleLimits
from fleet_tools.config.values import Count
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.result import EpisodeResult, decode_actions
from fleet_tools.evaluation.result_folder import load_evaluation
from fleet_tools.evaluation.trial import present_env, run_trial
from fleet_tools.policies.policy import StoredActions
from fleet_tools.rollouts.agreement import distance_of_points
from fleet_tools.utils import cli

_COLUMNS = (
    "result",
    "task",
    "step",
    "episodes",
    "successes",
    "other verdict",
    "other number of steps",
    "other gentleness",
    "moved",
    *(f"{place}, {value}" for place in ("object", "table") for value in ("peak", "mean")),
)

_FORCES = ("object_peak_N", "object_mean_N", "table_peak_N", "table_mean_N")

LEAST_N = 1.0
"""Smallest force with a relative change in the table."""


class VerdictsOptions(cli.Options):
    """Replays stored actions with smaller time steps, and compares verdicts, ends and forces.

    After the stored actions the hand holds still, until the episode ends. A row for each result,
    task and step has the number of successes, and compares episodes with the same ones at 4 ms. It
    counts episodes with another verdict, with another number of control steps, and with gentle
    success in only one of both. It has the distance of keypoints and the end effector from their
    ends at 4 ms. And it has the changes of the hand's forces on object and table: of the peak (of 4
    ms, at every step) and the mean in contact. Changes are the median and the largest
    ones. Changes of forces are relative, over episodes with both forces at least 1 N.

    Exit codes:
    0: every verdict is the same at every step.
    1: one is not.
    """

    results: Annotated[tuple[Path, ...], Positional, arg(metavar="RESULT")]
    """Folders of results."""
    episodes: Count = 4
    """Number of episodes of each task from each result, drawn by a fixed seed."""
    substeps: tuple[Count, ...] = (2, 4)
    """Numbers of time steps in a period of the controller."""


def _compare(options: VerdictsOptions) -> int:
    every = (1, *sorted({*options.substeps} - {1}))

    def rows() -> Iterator[dict[str, Any]]:
        for folder in options.results:
            protocol = load_evaluation(folder).result.local_protocol()
            drawn = draw([folder], options.episodes)
            for task in dict.fromkeys(episode.task for episode in drawn):
                of_task = [episode for episode in drawn if episode.task == task]
                reference = _ends(protocol, of_task, 1)
                for substeps in every:
                    ends = reference if substeps == 1 else _ends(protocol, of_task, substeps)
                    facts = {"result": str(folder), "task": task, "substeps": substeps}
                    yield facts | compared(reference, ends, protocol.gentle_limits(task))

    found = report_rows(options, _COLUMNS, rows(), _cells)
    return cli.FAILED if any(row["other_verdict"] for row in found) else cli.OK


def _ends(
    protocol: Protocol, episodes: Sequence[EpisodeResult], substeps: int
) -> list[EpisodeResult]:
    """Runs episodes of one task again, each period of the controller in so many time steps."""
    env = present_env(protocol)(episodes[0].task)
    unwrap(env)._viewed.substeps = substeps  # no argument: no policy is to be trained or ranked so
    ends = []
    for episode in episodes:
        actions = decode_actions(episode.actions)
        rest = np.zeros((unwrap(env).task.max_episode_steps, *actions.shape[1:]), actions.dtype)
        policy = StoredActions(np.concatenate([actions, rest]))  # then it holds still
        ends.append(run_trial(env, policy, protocol, episode))
    env.close()
    return ends


def compared(
    reference: Sequence[EpisodeResult],
    ends: Sequence[EpisodeResult],
    limits: GentleLimits | None,
) -> dict[str, Any]:
    """Compares the ends of episodes with the same ones at the protocol's step."""
    pairs = list(zip(reference, ends, strict=True))
    distances = [distance_of_points(one.final_points_m, two.final_points_m) for one, two in pairs]
    near = [f"{one.split} {one.index}" for one, two in pairs if one.success != two.success]
    return {
        "episodes": len(pairs),
        "successes": sum(end.success for end in ends),
        "other_verdict": len(near),
        "near_the_edge": near,
        "other_steps": sum(one.steps != two.steps for one, two in pairs),
        "other_gentleness": sum(one.gentle(limits) != two.gentle(limits) for one, two in pairs),
        "moved_m": _middle_and_largest([d for d in distances if d is not None]),
        "force_changes": {name: _middle_and_largest(_changes(name, pairs)) for name in _FORCES},
    }


def _changes(force: str, pairs: Sequence[tuple[EpisodeResult, EpisodeResult]]) -> list[float]:
    """Returns relative changes of a force of `ContactMetrics.numbers` that is large enough."""
    handled = [
        (a.contact_metrics.numbers(), b.contact_metrics.numbers())
        for a, b in pairs
        if a.contact_metrics and b.contact_metrics
    ]
    forces = [(one[force], two[force]) for one, two in handled]
    return [two / one - 1.0 for one, two in forces if min(one, two) >= LEAST_N]


def _middle_and_largest(values: list[float]) -> list[float] | None:
    return [median(values), max(values, key=abs)] if values else None


def _cells(row: dict[str, Any]) -> list[str]:
    moved, near = row["moved_m"], ", ".join(row["near_the_edge"])
    changes = row["force_changes"].values()
    return [
        row["result"],
        row["task"],
        f"{1e3 * TIME_STEP / row['substeps']:g} ms",
        *(str(row[name]) for name in ("episodes", "successes")),
        f"{row['other_verdict']} ({near})" if near else "0",
        *(str(row[name]) for name in ("other_steps", "other_gentleness")),
        "unknown" if moved is None else " and ".join(f"{1e3 * m:.2f}" for m in moved) + " mm",
        *("" if each is None else " and ".join(f"{c:+.1%}" for c in each) for each in changes),
    ]


main = main_of(__file__, VerdictsOptions, _compare)

if __name__ == "__main__":
    sys.exit(main())

"""Episodes with other releases of Drake: `python benchmarks/drake_versions.py --environments DIR`.

python benchmarks/drake_versions.py --releases 1.51.1 1.58.0 --python python3.12 --environments DIR

The reference release makes the episodes, and every release runs their actions again.
"""

import contextlib
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from children import Child
from console import AGREEMENT_COLUMNS, agreement_cells, print_now, table_head, table_row

from fleet_tools.config.values import Count
from fleet_tools.errors import FleetToolsError
from fleet_tools.utils import cli
from fleet_tools.utils.drake_release import ANY_RELEASE
from fleet_tools.utils.machine import machine_name
from fleet_tools.utils.progress import progress_bar

_ROOT = Path(__file__).resolve().parents[1]
_RESULTS = _ROOT / "leaderboard" / "results"
_HEADER = table_head(
    ["Drake", "Python", "numpy", *AGREEMENT_COLUMNS, "change of forces", "time of a step"]
)


class ReleasesOptions(cli.Options):
    """Runs the same stored episodes with several releases of Drake, and compares.

    The episodes are of all tasks, with actions of the expert, of the expert with noise, at random
    and of clones; in one of three, the object is moved during the episode. The reference release
    makes them. Prints a row for each release: in how many episodes every bit of states,
    observations and rewards is the same, how many end alike (outcome and steps), how many of these
    within a distance over all steps, the largest distance, the root mean square of the change of
    forces on the end effector relative to that of the forces, with the largest change, and the
    processor time of a control step relative to that of the reference, the median over the
    episodes. Releases take turns, so that other programs slow down all of them alike.

    Exit codes:
    0: every release runs all episodes.
    1: a release does not.
    2: it cannot begin.
    130: Ctrl-C.
    """

    environments: Path
    """Folder of the environments and of the episodes; kept, and used by the next run."""
    releases: tuple[str, ...] = ()
    """Releases beside the reference for which environments are made."""
    reference: str = "1.51.1"
    """Release that makes the episodes."""
    python: str = sys.executable
    """Interpreter for which all these releases have wheels."""
    interpreters: tuple[Path, ...] = ()
    """Interpreters of other environments to compare, with whatever versions they have."""
    episodes: Count = 6
    """Number of episodes of each task with actions of each kind."""
    at_once: Count = 1
    """Number of releases that run an episode at the same time."""
    clones: tuple[Path, ...] = tuple(
        sorted(
            path.parent
            for name in ("bc_elman", "bc_mlp", "bc_joint_mlp")
            for pattern in ("0/result.json", "0/*/result.json")  # of the first level alone
            for path in (_RESULTS / name).glob(pattern)
        )
    )
    """Folders of results of clones, whose actions are taken."""


def _compare(options: ReleasesOptions) -> int:
    from release_environments import make_environment
    from release_episodes import episode_names

    interpreters: dict[str, Path] = {}
    reference = options.reference
    releases = options.releases if reference in options.releases else (reference, *options.releases)
    for release in dict.fromkeys(releases):
        print_now(options, f"Environment of Drake {release}")
        interpreters[release] = make_environment(options.environments, options.python, release)
    interpreters |= {str(path): path for path in options.interpreters}
    episodes = options.environments / f"episodes-{reference}-{options.episodes}"
    clones = map(str, options.clones)
    with _child(
        interpreters[reference], "make", str(episodes), str(options.episodes), *clones
    ) as maker:
        digest = maker.answer()
    rows = _replay(episodes, interpreters, options)
    names = episode_names(episodes)
    summaries = [row.summary(rows[reference], names) for row in rows.values()]
    summary = {
        "machine": machine_name(),
        "episodes": len(names),
        "digest": digest,
        "rows": summaries,
    }
    options.report(summary, lambda: _as_text(summary, reference))
    return cli.OK if all(row.failure is None for row in rows.values()) else cli.FAILED


@dataclass
class _Row:
    """What a release answers.

    Attributes:
        packages: Versions, by name; of Python, too.
        answers: What `release_episodes.py` says of each episode.
        failure: Why it says no more.
    """

    packages: dict[str, str]
    answers: list[dict[str, Any]] = field(default_factory=list)
    failure: str | None = None

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Keeps the reason why there is no answer."""
        try:
            yield
        except FleetToolsError as error:
            self.failure = str(error)

    def summary(self, reference: "_Row", episodes: Sequence[str]) -> dict[str, Any]:
        """Returns the figures, as plain JSON data.

        Args:
            reference: The row of the release that made the episodes.
            episodes: Their names, in order.
        """
        from fleet_tools.rollouts.agreement import WITHIN_M, Agreement, counts

        if not self.answers:
            return {**self.packages, "failure": self.failure}
        agreements = [
            Agreement(**{each.name: answer[each.name] for each in fields(Agreement)})
            for answer in self.answers
        ]
        squares, change_squares = (
            math.fsum(each[name] for each in self.answers)
            for name in ("force_squares", "force_change_squares")
        )
        near = [agreement.within(WITHIN_M) for agreement in agreements]
        others = [answer for answer, is_near in zip(self.answers, near, strict=True) if is_near]
        pairs = zip(self.answers, reference.answers, strict=False)  # until it failed
        return {
            **self.packages,
            **counts(agreements),
            "apart": [name for name, is_near in zip(episodes, near, strict=False) if not is_near],
            "others": {
                name: max((answer[name] or 0 for answer in others), default=0)
                for name in ("distance_m", "force_change_N")
            },
            "force_change": math.sqrt(change_squares / squares) if squares else None,
            "largest_force_change_N": max(each["force_change_N"] for each in self.answers),
            "step_ms": 1e3 * statistics.median(each["step_s"] for each in self.answers),
            "step_ratio": statistics.median(a["step_s"] / b["step_s"] for a, b in pairs),
            "failure": self.failure,
        }


def _replay(
    episodes: Path, interpreters: Mapping[str, Path], options: ReleasesOptions
) -> dict[str, _Row]:
    """Runs every episode with every release in turn."""
    from release_episodes import episode_names

    names = episode_names(episodes)
    rows = {name: _Row({"drake": name}) for name in interpreters}
    with contextlib.ExitStack() as stack:
        children = {
            name: stack.enter_context(_child(interpreter, "replay", str(episodes)))
            for name, interpreter in interpreters.items()
        }
        for name, row in rows.items():
            with row.failing():
                row.packages = children[name].answer()
        bar = stack.enter_context(progress_bar(len(names), "episode", quiet=options.quiet))
        for question in names:
            running = [name for name, row in rows.items() if row.failure is None]
            for first in range(0, len(running), options.at_once):
                batch = running[first : first + options.at_once]
                for name in batch:
                    children[name].ask(question)
                for name in batch:
                    with rows[name].failing():
                        rows[name].answers.append(children[name].answer())
            bar.update()
    return rows


def _child(interpreter: Path, *arguments: str) -> Child:
    variables = {"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1", ANY_RELEASE: "1"}
    return Child("release_episodes.py", arguments, interpreter=interpreter, variables=variables)


def _as_text(summary: Mapping[str, Any], reference: str) -> str:
    apart = (
        f"More than {row['within_m']:g} m apart with Drake {row['drake']}, Python {row['python']}: "
        f"{', '.join(row['apart'])}; all others by at most {row['others']['distance_m']:.2g} m and "
        f"{row['others']['force_change_N']:.2g} N"
        for row in summary["rows"]
        if row.get("apart")
    )
    made = (
        f"{summary['episodes']} episodes, made with Drake {reference}, digest {summary['digest']}; "
        f"measured on {summary['machine']}"
    )
    return "\n".join([_HEADER, *map(_row_text, summary["rows"]), "", *apart, made])


def _row_text(row: Mapping[str, Any]) -> str:
    versions = [row.get(name, "") for name in ("drake", "python", "numpy")]
    if "episodes" not in row:
        return table_row([*versions, f"does not run: {row['failure']}", *[""] * 6])
    ended = [row["failure"]] if row["failure"] else []
    change, largest_N = row["force_change"], row["largest_force_change_N"]
    forces = "0" if change == 0 else f"{change:.2g}, at most {largest_N:.2g} N"
    time = f"{row['step_ratio']:.2f} ({row['step_ms']:.1f} ms)"
    count, *agreement = agreement_cells(row)
    return table_row([*versions, "; ".join([count, *ended]), *agreement, forces, time])


PROGRAM = cli.Program(
    "drake_versions.py", cli.Command(ReleasesOptions, _compare), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())

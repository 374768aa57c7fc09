"""Searches for hard scenes: `python benchmarks/hard_scenes.py --policies A.safetensors`.

    python benchmarks/hard_scenes.py --policies fleet-tools/bc_few fleet-tools/bc_few_elman

Candidates are drawn within the ranges of training, with seeds of their own. The difficulty of one
is the number of policies that fail in it, and, of each that succeeds, the part of the time limit
that it takes. The search goes in rounds: a model is fitted to the difficulty of the candidates
that have been tried, and those that it expects to be hardest are tried next, besides some at
random. The expert takes no part in it: that it solves them is to be shown by its evaluation.

Episodes are stored, so that a search continues, and the same command over a finished one finds the
same scenes without running any.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from console import print_now, table_head, table_row
from failure_model import SPLITS, Pool, scene_numbers
from task_selection import TaskSelection

from fleet_tools.config.values import Count
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.utils import cli

# Results and Drake are imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.evaluation.protocol import Trial
    from fleet_tools.evaluation.result import EpisodeResult
    from fleet_tools.evaluation.result_folder import EvaluationWriter
    from fleet_tools.policies.sources import PolicySource

FIRST_SEED = 2**52 + 2**51
"""Seed of the first candidate: among those of evaluations, none of a level that counts scenes."""

_APART = 10**9
"""Distance of the seeds of two splits."""
_QUICK = 0.5
"""Part of the time limit: a candidate where nobody fails or takes as long is tried no more."""
_COLUMNS = ["task", "round", "tried", "all fail", "hardest", "of these all fail", "mean difficulty"]


class HardScenesOptions(cli.Options):
    """Searches for the scenes that are hardest for given policies.

    Prints a row for each round of each task, then the splits of a level that has the hardest
    scenes of each task and split.

    Exit codes:
    0: as many were tried as are wanted.
    1: there are fewer of some task and split.
    2: it cannot begin.
    130: Ctrl-C.
    """

    policies: tuple[str, ...]
    """Checkpoints, or module:factory, all of which act in the selected tasks; the weakest first,
    since what it solves quickly is tried by no other."""
    tasks: TaskSelection = TaskSelection()
    candidates: Count = 1000
    """Number of candidates of each task and split, of which few are tried."""
    rounds: Count = 4
    """Number of rounds, the first of which is at random."""
    batch: Count = 8
    """Number of candidates of each split that are tried in a round."""
    wanted: Count = 15
    """Number of scenes of each task and split; a split's search ends where all fail in so many."""
    alike: Count = 5
    """Number of these scenes of a split, at most, that have the same tool and the same object."""
    level: str | None = None
    """Level of the protocol whose disturbances and further objects the candidates have (default:
    none)."""
    output: Path = Path("results/hard_scenes")
    """Folder of the evaluations."""
    workers: WorkerOptions = WorkerOptions()

    def task_names(self) -> Sequence[str]:
        """Returns the tasks, of the protocol where none is selected."""
        from fleet_tools.evaluation.config import PROTOCOL
        from fleet_tools.evaluation.protocol_file import load_protocol

        selected = self.tasks.task is not None or self.tasks.tool != TaskSelection().tool
        return self.tasks.names_or_paths() if selected else load_protocol(PROTOCOL).tasks


def _search(options: HardScenesOptions) -> int:
    print_now(options, table_head(_COLUMNS))
    rows, found = [], {}
    for task in options.task_names():
        rounds, pool, trials = search_task(options, task)
        rows += rounds
        found[task] = {split: [trials[k].seed for k in of] for split, of in pool.found().items()}
    splits = listed_splits(found, options.wanted)
    if options.json_output:
        options.report({"rows": rows, "splits": splits}, str)
    elif splits:
        import yaml

        print_now(options, yaml.safe_dump({"splits": splits}, sort_keys=False, width=100))
    complete = all(len(of) == options.wanted for each in found.values() for of in each.values())
    return cli.OK if complete else cli.FAILED


def search_task(
    options: HardScenesOptions, task: str
) -> "tuple[list[dict[str, Any]], Pool, list[Trial]]":
    """Searches among the candidates of a task.

    Returns:
        A row of the table for each round; the candidates, and their trials in the same order.
    """
    rows = []
    with contextlib.ExitStack() as stack:
        search = stack.enter_context(TaskSearch.begin(options, task))
        pool = search.pool
        for number in range(1, options.rounds + 1):
            if not (batch := pool.next_candidates()):
                break
            search.run(batch)
            hardest = [k for of in pool.found().values() for k in of]
            mean = sum(pool.difficulty[k] for k in hardest) / len(hardest)
            fail = [sum(pool.difficulty[k] >= pool.hardest for k in of) for of in (batch, hardest)]
            values = (task, number, len(batch), fail[0], len(hardest), fail[1], round(mean, 2))
            rows.append(dict(zip(_COLUMNS, values, strict=True)))
            print_now(options, table_row(map(str, values)))
    return rows, pool, search.trials


@dataclass
class Player:
    """A policy in the candidates of a task; its episodes are stored as they end."""

    source: "PolicySource"
    writer: "EvaluationWriter"

    def play(self, trials: "Sequence[Trial]", workers: WorkerOptions) -> "list[EpisodeResult]":
        """Returns its episodes of some candidates, of which those not yet stored are run."""
        from fleet_tools.evaluation.run import run_trials

        if not trials:
            return []
        run_trials(self.writer, self.source, trials, workers)
        episodes = {episode.key: episode for episode in self.writer.records}
        return [episodes[trial.key] for trial in trials]


@dataclass
class TaskSearch:
    """The search in a task: its candidates, and who tries them."""

    options: HardScenesOptions
    players: list[Player]
    trials: "list[Trial]"
    pool: Pool
    most_steps: int

    @classmethod
    @contextlib.contextmanager
    def begin(cls, options: HardScenesOptions, task: str) -> "Iterator[Self]":
        """Begins a search, or goes on with it; scores of the evaluations are stored at its end."""
        from fleet_tools.evaluation.config import EvaluationConfig
        from fleet_tools.evaluation.result_folder import EvaluationWriter
        from fleet_tools.evaluation.run import describe
        from fleet_tools.robot.arm import load_robot

        file = write_candidates(options, task)
        with contextlib.ExitStack() as stack:
            players = []
            for number, policy in enumerate(options.policies):
                # In this process, since one begins anew in each round; no result is submitted.
                config = EvaluationConfig(policy=policy, protocol=str(file), track="privileged")
                source, result, trials = describe(config)
                folder = options.output / f"{number}_{trials[0].task}"
                writer = stack.enter_context(EvaluationWriter(folder, result))
                players.append(Player(source, writer))
            protocol = players[0].writer.result.local_protocol()
            trials = protocol.trials()
            robots_task = load_robot().fill(protocol.load_task(trials[0].task))
            scenes = [protocol.scene(robots_task, trial) for trial in trials]
            pairs = [
                (trial.split, scene.tool, scene.object)
                for trial, scene in zip(trials, scenes, strict=True)
            ]
            numbers = (len(players), options.batch, options.wanted, options.alike)
            pool = Pool(pairs, scene_numbers(scenes), *numbers)
            yield cls(options, players, trials, pool, robots_task.max_episode_steps)
            for player in players:
                player.writer.finish()

    def run(self, batch: Sequence[int]) -> None:
        """Tries candidates, and tells the pool how hard they are."""
        taken: dict[int, list[float]] = {k: [] for k in batch}
        left = [*batch]
        for player in self.players:
            episodes = player.play([self.trials[k] for k in left], self.options.workers)
            for k, episode in zip(left, episodes, strict=True):
                part = episode.steps / (self.most_steps + 1)  # 1 is a failure's alone
                taken[k].append(part if episode.success else 1.0)
            left = [k for k in left if max(taken[k]) >= _QUICK]
        self.pool.difficulty |= {k: sum(each) for k, each in taken.items()}


def write_candidates(options: HardScenesOptions, task: str) -> Path:
    """Writes the protocol of the candidates of a task, and returns its file."""
    import yaml

    from fleet_tools.evaluation.config import PROTOCOL
    from fleet_tools.evaluation.protocol_file import load_protocol

    content: dict[str, Any] = {
        "name": "candidates",
        "version": 1,
        "description": "Scenes among which hard ones are searched for.",
        "tasks": [task],
        "splits": {
            split: {"scenes": options.candidates, "first_seed": FIRST_SEED + k * _APART}
            for k, split in enumerate(SPLITS)
        },
    }
    if options.level is not None:
        level = load_protocol(PROTOCOL, options.level)
        content |= level.model_dump(mode="json", include={"disturbances", "next_objects"})
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / f"{task}.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return file


def listed_splits(found: dict[str, dict[str, list[int]]], wanted: int) -> dict[str, Any]:
    """Returns the splits of a level: as many first scenes of each task as all tasks have."""
    splits = {}
    for split in SPLITS:
        count = min([wanted, *(len(of_task[split]) for of_task in found.values())])
        if count:
            listed = {task: of_task[split][:count] for task, of_task in found.items()}
            splits[split] = {"listed": listed}
    return splits


PROGRAM = cli.Program(
    "hard_scenes.py", cli.Command(HardScenesOptions, _search), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())

"""Evaluates a policy: `python -m fleet_tools.evaluate --policy expert --output results/expert`.

Every episode is stored with its actions, so that anyone can compute the scores again, and run an
episode again without the policy.
"""

import contextlib
import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_tools.envs.outcomes import POLICY_ERROR, SIMULATION_ERROR, WORKER_ERROR
from fleet_tools.evaluation.config import EvaluationConfig
from fleet_tools.parallel.interrupts import deferred_interrupt
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.utils import cli
from fleet_tools.utils.progress import TallyBar

# Results and Drake are imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.evaluation.protocol import Trial
    from fleet_tools.evaluation.result import EpisodeResult

_ERRORS_SHOWN = 10


class EvaluateOptions(cli.Options):
    """Evaluates a policy by a protocol, or resumes an interrupted evaluation.

    It says at its start whether the result can enter the leaderboard, and if not, why.

    Exit codes:
    0: all requested episodes are there.
    1: some of them ended by an error of the policy, the simulator or a worker, or the disk is full
       or gone.
    2: it cannot begin.
    130: Ctrl-C, which waits for the episodes in progress.
    """

    evaluation: EvaluationConfig
    output: Path
    """Folder of the result."""
    compare: Path | None = None
    """Folder of another result, to compare scene by scene."""
    workers: WorkerOptions = WorkerOptions()


def _evaluate(options: EvaluateOptions) -> int:
    from fleet_tools.evaluation.admission import admission
    from fleet_tools.evaluation.result_folder import EvaluationWriter, load_evaluation
    from fleet_tools.evaluation.run import describe, run_trials
    from fleet_tools.evaluation.scores import as_text, compare, require_comparable
    from fleet_tools.rollouts.rollout import cause_lines, failure_causes

    started = time.perf_counter()
    config = options.evaluation
    with contextlib.redirect_stdout(sys.stderr):  # a policy's module may print
        policy, described, trials = describe(config, options.command_line)
    requested = {trial.key for trial in trials}
    other = load_evaluation(options.compare) if options.compare else None
    if other is not None:
        require_comparable(described, other.result)
    failure = None
    with EvaluationWriter(options.output, described) as writer:
        before = len(writer.records)
        entry = admission(described, {*requested, *(each.key for each in writer.records)})
        if not options.quiet:
            print(entry, file=sys.stderr)
        with (
            TallyBar(
                len(trials),
                "episode",
                tally=Counter(each.outcome for each in writer.records if each.key in requested),
                quiet=options.quiet,
            ) as bar,
            deferred_interrupt() as interrupted,
            contextlib.redirect_stdout(sys.stderr),  # without workers, the policy prints here
        ):
            try:
                run_trials(
                    writer,
                    policy,
                    trials,
                    options.workers,
                    after_each=lambda episode: bar.update(episode.outcome),
                    stop=interrupted,
                )
            except (KeyboardInterrupt, OSError) as error:  # OSError: the disk is full or gone
                failure = error
            evaluation = writer.finish()
        now = len(writer.records) - before
    result, scores = evaluation.result, evaluation.result.scores
    comparison = compare(evaluation, other) if other else None
    done = [episode for episode in evaluation.episodes if episode.key in requested]
    causes = failure_causes(
        done, lambda episode: f"{episode.task} {episode.split} (seed {episode.seed})"
    )
    seconds = time.perf_counter() - started
    summary = {
        "folder": str(options.output),
        "policy": result.policy.model_dump(),
        "protocol": result.protocol.title,
        "protocol_digest": result.protocol_digest,
        "requested": len(trials),
        "done": len(done),
        "done_now": now,
        "complete": result.complete,
        "leaderboard": {"can_enter": entry.can_enter, **dataclasses.asdict(entry)},
        "outcomes": dict(Counter(episode.outcome for episode in done)),
        "causes": causes,
        "scores": scores and scores.model_dump(),
        "comparison": comparison and comparison.model_dump(),
        "seconds": round(seconds, 3),
    }
    options.report(
        summary,
        lambda: "\n".join(
            [
                as_text(result, comparison),
                *cause_lines(causes),
                f"{now} episodes now, in {seconds:.1f} s: {now / seconds:.2f} per second",
            ]
        ),
    )
    return _code(trials, done, failure, interrupted())


def _code(
    trials: Sequence["Trial"],
    done: Sequence["EpisodeResult"],
    failure: BaseException | None,
    interrupted: bool,
) -> int:
    """Reports errors on stderr, and returns the exit code."""
    if failure is not None or (interrupted and len(done) < len(trials)):
        return cli.stopped(failure)
    errors = [
        episode
        for episode in done
        if episode.outcome in (POLICY_ERROR, SIMULATION_ERROR, WORKER_ERROR)
    ]
    kinds = Counter((episode.outcome, episode.error) for episode in errors).most_common()
    for (outcome, error), count in kinds[:_ERRORS_SHOWN]:
        print(f"{count} ended as {outcome}: {error}", file=sys.stderr)
    if len(kinds) > _ERRORS_SHOWN:
        rest = sum(count for _, count in kinds[_ERRORS_SHOWN:])
        print(f"{rest} ended by other errors; the result's folder has all.", file=sys.stderr)
    return cli.FAILED if errors else cli.OK


PROGRAM = cli.Program("evaluate", cli.Command(EvaluateOptions, _evaluate))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())

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
from typing import TYPE_CHECKING, Annotated, Self

import pydantic

from fleet_tools.config.values import Positive
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

NOT_ALONE = (
    "The policy's process sees this user's other processes, since user namespaces are not allowed "
    "here. See docs/benchmark/security.md for the risks, and for running it in a container."
)


def _html(path: Path) -> Path:
    if path.suffix != ".html":
        raise ValueError(f"{path} does not end with .html, as a page must")
    return path


class EvaluateOptions(cli.Options):
    """Evaluates a policy by a protocol, or resumes an interrupted evaluation.

    It says at its start whether the result can enter the leaderboard, and if not, why. Each worker
    ends by trying its first episode again; a warning says where a policy does not repeat its
    actions, and the result keeps it.

    Exit codes:
    0: all requested episodes are there, or --stop ended it.
    1: some of them ended by an error of the policy, the simulator or a worker, or the disk is full
       or gone.
    2: it cannot begin.
    130: Ctrl-C, which waits for the episodes in progress.
    """

    evaluation: EvaluationConfig
    output: Path
    """Folder of the result."""
    against: Path | None = None
    """Folder of another result that has all requested scenes, to compare scene by scene. Scenes are
    run in an order that mixes tasks and splits and follows from the protocol, and the comparison
    may be looked at after any of them."""
    margin: Annotated[Positive, pydantic.Field(lt=1)] = 0.1
    """The least difference of success rates that matters, for the verdict of equivalence within
    it."""
    stop: bool = False
    """Stop as soon as the comparison has a verdict. Such a result is incomplete, and cannot enter
    the leaderboard; the same command without --stop completes it."""
    nominal: Path | None = None
    """Folder of the same policy's result at the level nominal: prints the cost of the level, from
    matched scenes."""
    failures: Annotated[Path, pydantic.AfterValidator(_html)] | None = None
    """New page (.html) with videos of the first failed episodes of each task and outcome."""
    workers: WorkerOptions = WorkerOptions()

    @pydantic.model_validator(mode="after")
    def _stops_by_a_comparison(self) -> Self:
        if self.stop and self.against is None:
            raise ValueError("--stop ends a comparison early; give the other result with --against")
        return self


def _evaluate(options: EvaluateOptions) -> int:
    from fleet_tools.evaluation.admission import admission
    from fleet_tools.evaluation.anytime import AnytimeComparison
    from fleet_tools.evaluation.level_cost import level_cost, require_matched
    from fleet_tools.evaluation.result_folder import EvaluationWriter, load_evaluation
    from fleet_tools.evaluation.run import describe, run_trials
    from fleet_tools.evaluation.score_tables import as_text
    from fleet_tools.evaluation.scores import compare
    from fleet_tools.policies.confined import can_be_alone
    from fleet_tools.rollouts.rollout import cause_lines, failure_causes

    if options.failures is not None:
        from fleet_tools.studio.pictures.clips import require_clips

        require_clips()
    started = time.perf_counter()
    config = options.evaluation
    with contextlib.redirect_stdout(sys.stderr):  # a policy's module may print
        policy, described, trials = describe(config, options.command_line, options.workers.timeout)
    requested = {trial.key for trial in trials}
    test = failure = stopped = None
    if options.against is not None:
        other = load_evaluation(options.against)
        test = AnytimeComparison.of(described, other, trials, options.margin)
        trials = test.trials
    nominal = options.nominal and load_evaluation(options.nominal)
    if nominal:
        require_matched(nominal.result, described)
    with EvaluationWriter(options.output, described) as writer:
        before = len(writer.records)
        present = {each.key for each in writer.records}
        entry = admission(writer.result, {*requested, *present})
        confined = policy.kind == "factory" and described.policy.track == "observations"
        if not options.quiet:
            if confined and not can_be_alone():
                print(NOT_ALONE, file=sys.stderr)
            print(f"{entry}{' If --stop ends it, it cannot.' * options.stop}", file=sys.stderr)
        told = test and test.look(writer.records)
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

            def after_each(episode: "EpisodeResult") -> None:
                nonlocal told
                told = test and test.look(writer.records)
                bar.update(episode.outcome, note=told.progress if told else "")

            def decided() -> bool:
                return options.stop and told is not None and told.decided

            try:
                run_trials(
                    writer,
                    policy,
                    trials,
                    options.workers,
                    after_each=after_each,
                    stop=lambda: interrupted() or decided(),
                )
            except (KeyboardInterrupt, OSError) as error:  # OSError: the disk is full or gone
                failure = error
            if writer.result.order_dependence:
                print(f"Warning: {writer.result.order_dependence}", file=sys.stderr)
            if decided() and requested - {each.key for each in writer.records}:
                stopped = told
            keys = {each.key for each in writer.records} if stopped else {*requested, *present}
            entry = admission(writer.result, keys)
            evaluation = writer.finish(stopped)
        now = len(writer.records) - before
    if again := sum(episode.tries > 1 for episode in evaluation.episodes):
        print(f"{again} episodes were begun more than once; see `tries`.", file=sys.stderr)
    result, scores = evaluation.result, evaluation.result.scores
    comparison = test and compare(evaluation, test.other).model_copy(update={"anytime": told})
    cost = nominal and level_cost(nominal, evaluation)
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
        "stopped": stopped is not None,
        "order_dependence": result.order_dependence,
        "leaderboard": {"can_enter": entry.can_enter, **dataclasses.asdict(entry)},
        "outcomes": dict(Counter(episode.outcome for episode in done)),
        "causes": causes,
        "scores": scores and scores.model_dump(),
        "comparison": comparison and comparison.model_dump(),
        "level_cost": cost and dataclasses.asdict(cost),
        "seconds": round(seconds, 3),
    }
    options.report(
        summary,
        lambda: "\n".join(
            [
                as_text(result, comparison),
                *([str(cost)] if cost else []),
                *cause_lines(causes),
                f"{now} episodes now, in {seconds:.1f} s: {now / seconds:.2f} per second",
            ]
        ),
    )
    code = _code(trials, done, failure, interrupted() and stopped is None)
    if options.failures is not None and code in (cli.OK, cli.FAILED):
        from fleet_tools.storage.atomic_files import write_file
        from fleet_tools.studio.pictures.failures import failure_page

        write_file(options.failures, failure_page(evaluation))
    return code


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

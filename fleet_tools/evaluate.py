"""Scores a policy: `python -m fleet_tools.evaluate --policy expert --output results/expert`.

Every episode is stored with its actions, so that anyone can compute the scores again, and run an
episode again without the policy.
"""

import argparse
import contextlib
import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_tools.envs.outcomes import POLICY_ERROR, SIMULATION_ERROR, WORKER_ERROR
from fleet_tools.parallel.interrupts import patient_interrupt
from fleet_tools.utils import cli as programs

# Results, tasks and Drake are imported once the arguments are known to be good.
if TYPE_CHECKING:
    from fleet_tools.evaluation.protocol import Trial
    from fleet_tools.evaluation.result import EpisodeResult, Result
    from fleet_tools.evaluation.writer import EvaluationWriter
    from fleet_tools.policies.sources import PolicySource

_ERRORS_SHOWN = 10


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    given = sys.argv[1:] if arguments is None else arguments
    return programs.run(_parser(), partial(_evaluate, given), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = programs.argument_parser(
        "fleet_tools.evaluate",
        "Scores a policy by a protocol; goes on with an evaluation that was interrupted.",
        "Exits with 0 when all episodes asked for are there, 1 when some of them ended by an error "
        "of the policy, the simulator or a worker, 2 when it cannot begin, 130 after Ctrl-C, which "
        "waits for the episodes at work.",
    )
    programs.add_policy_option(parser)
    parser.add_argument(
        "--output", metavar="DIR", type=Path, required=True, help="the result's folder"
    )
    parser.add_argument(
        "--protocol", metavar="NAME", default="v1", help="a protocol, or your own's path (v1)"
    )
    parser.add_argument("--tool", metavar="NAME", help="only this task of the protocol")
    parser.add_argument("--split", metavar="NAME", help="only this split of it")
    parser.add_argument(
        "--episodes", metavar="N", type=programs.positive_int,
        help="only the first N of each task and split",
    )  # fmt: skip
    parser.add_argument("--name", help="what tables call the policy (as --policy does)")
    parser.add_argument(
        "--training-seed", metavar="K", type=programs.seed,
        help="which training of several of the same --name; leaderboards take these together",
    )  # fmt: skip
    parser.add_argument(
        "--obs-mode", metavar="MODE",
        help="what it observes: state, multitask_state, point_cloud or rgbd (as it says itself, "
        "else state)",
    )  # fmt: skip
    parser.add_argument(
        "--compare", metavar="DIR", type=Path, help="another result, to compare scene by scene"
    )
    programs.add_worker_options(parser)
    return parser


def _evaluate(arguments: Sequence[str], options: argparse.Namespace) -> int:
    from fleet_tools.evaluation.comparison import compare, require_comparable
    from fleet_tools.evaluation.result import Evaluation, in_order, load_evaluation
    from fleet_tools.evaluation.trial import make_trials
    from fleet_tools.evaluation.writer import EvaluationWriter
    from fleet_tools.policies.sources import find

    begun = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):  # a policy's module may print
        policy = find(options.policy)
        result = _result(options, policy, ["python", "-m", "fleet_tools.evaluate", *arguments])
    asked = result.protocol.trials(options.tool, options.split, options.episodes)
    other = load_evaluation(options.compare) if options.compare else None
    if other is not None:
        require_comparable(result, other.result)
    failed = None
    with (
        EvaluationWriter(options.output, result) as writer,
        patient_interrupt() as interrupted,
    ):
        before = len(writer.episodes)
        try:
            _run(writer, partial(make_trials, result, policy), asked, options, interrupted)
        except (KeyboardInterrupt, OSError) as error:  # OSError: the disk is full, or gone
            failed = error
        result = writer.finish()
        episodes = in_order(result.protocol, writer.episodes, options.output)
    comparison = compare(Evaluation(result, episodes), other) if other else None
    keys = {trial.key for trial in asked}
    there = [episode for episode in episodes if episode.key in keys]
    summary = {
        "folder": str(options.output),
        "policy": result.policy.model_dump(),
        "protocol": result.protocol.title,
        "protocol_digest": result.protocol_digest,
        "asked": len(asked),
        "done": len(there),
        "done_now": len(writer.episodes) - before,
        "complete": result.complete,
        "outcomes": dict(Counter(episode.outcome for episode in there)),
        "scores": result.scores.model_dump(),
        "comparison": comparison and comparison.model_dump(),
        "seconds": round(time.perf_counter() - begun, 3),
    }
    if options.json:
        print(json.dumps(summary))
    elif not options.quiet:
        from fleet_tools.evaluation.summary import as_text

        print(as_text(result, comparison))
        now, seconds = summary["done_now"], summary["seconds"]
        print(f"{now} episodes now, in {seconds:.1f} s: {now / seconds:.2f} a second")
    return _code(asked, there, failed, interrupted())


def _result(options: argparse.Namespace, source: "PolicySource", command: list[str]) -> "Result":
    """Who is evaluated, by what; whatever cannot be, is found here."""
    from fleet_tools.dataset.header import installed_packages
    from fleet_tools.evaluation.identity import identify
    from fleet_tools.evaluation.protocol import load_protocol, protocol_digest, task_digests
    from fleet_tools.evaluation.result import Machine, Result
    from fleet_tools.registration import make_environment

    protocol = load_protocol(options.protocol)
    protocol.trials(options.tool, options.split)  # complains of what is not in it
    policy = identify(source, options.name, options.obs_mode)
    policy = policy.model_copy(update={"training_seed": options.training_seed})
    for task in (options.tool,) if options.tool else protocol.tasks:
        make_environment(task=task, **policy.environment).close()
    digests = task_digests(protocol)
    return Result(
        protocol=protocol,
        task_digests=digests,
        protocol_digest=protocol_digest(protocol, digests),
        policy=policy,
        packages=installed_packages(),
        machine=Machine.here(),
        command=shlex.join(command),
    )


def _run(
    writer: "EvaluationWriter",
    make_work: Callable[[], Callable[["Trial"], "EpisodeResult"]],
    asked: Sequence["Trial"],
    options: argparse.Namespace,
    stop: Callable[[], bool],
) -> None:
    """Adds what is missing of the trials asked for."""
    from tqdm import tqdm

    from fleet_tools.evaluation.trial import lost_trial
    from fleet_tools.parallel import workers

    done = {episode.key: episode for episode in writer.episodes}
    left = iter([trial for trial in asked if trial.key not in done])
    tally = Counter(done[trial.key].outcome for trial in asked if trial.key in done)
    results = workers.run(
        lambda: None if stop() else next(left, None),
        make_work,
        **programs.worker_keywords(options),
    )
    with (
        contextlib.redirect_stdout(sys.stderr),  # without workers, the policy prints here
        contextlib.closing(results),
        tqdm(total=len(asked), initial=tally.total(), unit="episode", disable=options.quiet) as bar,
    ):
        for trial, came in results:
            episode = lost_trial(trial, came.reason) if isinstance(came, workers.Lost) else came
            writer.add(episode)
            tally[episode.outcome] += 1
            words = [f"{count} {outcome}" for outcome, count in tally.most_common()]
            bar.set_postfix_str(", ".join(words), refresh=False)
            bar.update()


def _code(
    asked: Sequence["Trial"],
    there: Sequence["EpisodeResult"],
    failed: BaseException | None,
    interrupted: bool,
) -> int:
    """Says on stderr what is not well, and returns the exit code."""
    if failed is not None or (interrupted and len(there) < len(asked)):
        return programs.stopped(failed)
    errors = [
        episode
        for episode in there
        if episode.outcome in (POLICY_ERROR, SIMULATION_ERROR, WORKER_ERROR)
    ]
    kinds = Counter((episode.outcome, episode.error) for episode in errors).most_common()
    for (outcome, error), count in kinds[:_ERRORS_SHOWN]:
        print(f"{count} ended as {outcome}: {error}", file=sys.stderr)
    if len(kinds) > _ERRORS_SHOWN:
        rest = sum(count for _, count in kinds[_ERRORS_SHOWN:])
        print(f"{rest} ended by other errors; the result's folder has all.", file=sys.stderr)
    return programs.NOT_WELL if errors else programs.OK


if __name__ == "__main__":
    sys.exit(main())

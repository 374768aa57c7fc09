"""Trains a fleet of robots: `python -m fleet_tools.baselines.fleet CONFIG.yaml --output DIR`.

The same command resumes a stopped or killed fleet, and ends with the same bits.
"""

import contextlib
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from fleet_tools.baselines.federated import ReferenceName
from fleet_tools.baselines.training.config import CurveOptions
from fleet_tools.config.values import Positive
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.utils import cli
from fleet_tools.utils.progress import progress_bar

# PyTorch is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.baselines.federated.config import FleetConfig
    from fleet_tools.baselines.federated.plan import FleetPlan
    from fleet_tools.baselines.federated.progress import FleetProgress
    from fleet_tools.baselines.federated.transport import Transport


class RobotWorkerOptions(WorkerOptions):
    """Number and time limit of the processes that serve robots."""

    timeout: Positive = 3600.0
    """Time limit of a robot's answer, s; after it, the round continues without the robot."""
    robot_memory: Positive = 256.0
    """Memory of each process for the data of its last robots, MB."""


class FleetOptions(cli.Options):
    """Trains robots separately on their own data, and merges their policies; or resumes this.

    Exit codes:
    0: all rounds are done.
    1: all robots of a round are lost, numbers are not finite, or the disk is full or gone.
    2: it cannot begin.
    130: Ctrl-C; the finished rounds are stored, and the replies of the present one.
    """

    config: Annotated[Path, Positional, arg(metavar="CONFIG")]
    """YAML file with the keys of baselines/federated/config.py:FleetConfig."""
    output: Path
    """Folder of the fleet."""
    reference: ReferenceName | None = None
    """Train a control instead: joint (one robot with all data), joint_wide (with all robots'
    parameters), or joint_ensemble (as many robots, each with all data). Or robots that never merge:
    single, task_specific (one for each task), or task_specific_equal_steps (with as many gradient
    steps as joint). For a life, also last_month or sequential."""
    restart: bool = False
    """Begin anew; the former fleet in the folder is renamed to OUTPUT-former-1."""
    workers: RobotWorkerOptions = RobotWorkerOptions()
    curves: CurveOptions = CurveOptions()


def _fleet(options: FleetOptions) -> int:
    import torch

    from fleet_tools.baselines.federated.life import EventError
    from fleet_tools.baselines.federated.plan import FleetPlan
    from fleet_tools.baselines.federated.progress import FleetProgress, round_point
    from fleet_tools.baselines.federated.record import FleetWriter, restart
    from fleet_tools.baselines.federated.run import complete
    from fleet_tools.baselines.federated.summary import as_text
    from fleet_tools.baselines.training.reports import open_curves
    from fleet_tools.baselines.training.rollouts import make_success_measure
    from fleet_tools.errors import known_errors

    options.curves.require_libraries()
    torch.set_num_threads(1)  # as robots do, so that bits do not depend on the machine
    with contextlib.redirect_stdout(sys.stderr):  # a merging method's module may print
        config = _config(options)
        try:
            plan = FleetPlan.of(config)
        except EventError as error:
            raise error.in_file(options.config) from None
        measure_success = make_success_measure(
            config.data,
            config.rollouts,
            plan.blueprint,
            options.workers.workers,
            detector=config.detector,
        )
        if options.restart and (former := restart(options.output)):
            print(f"The former fleet is kept in {former}.", file=sys.stderr)
        with (
            FleetWriter(options.output, plan) as writer,
            _transport(options.workers, plan) as transport,
            _RoundBar(config.rounds, before := writer.load(), options.quiet) as bar,
        ):
            past = map(round_point, () if before is None else before.rounds)
            write_point = open_curves(options.curves, options.output, past)

            def after_round(progress: FleetProgress) -> None:
                bar.update(progress)
                write_point(round_point(progress.rounds[-1]))

            try:
                report = complete(
                    writer,
                    transport,
                    measure_success=measure_success,
                    after_round=after_round,
                    worker_count=options.workers.workers,
                )
            except (OSError, KeyboardInterrupt) as reason:
                return cli.stopped(reason)
            except known_errors() as error:
                print(f"Stopped: {error}", file=sys.stderr)
                return cli.FAILED
    options.report(
        {"output": str(options.output), **report}, lambda: as_text(str(options.output), report)
    )
    return cli.OK


def _config(options: FleetOptions) -> "FleetConfig":
    from fleet_tools.baselines.federated.config import FleetConfig
    from fleet_tools.baselines.federated.references import reference
    from fleet_tools.config.values import load_yaml

    config = load_yaml(FleetConfig, options.config)
    return config if options.reference is None else reference(config, options.reference)


@contextlib.contextmanager
def _transport(workers: RobotWorkerOptions, plan: "FleetPlan") -> Generator["Transport"]:
    from fleet_tools.baselines.federated.ray_transport import RayTransport
    from fleet_tools.baselines.federated.transport import LocalTransport
    from fleet_tools.parallel.cluster import connected, worker_count

    count, memory = workers.workers, workers.robot_memory * 1e6
    with connected(count, workers.ray_address) if count != 0 else contextlib.nullcontext() as ray:
        if ray is None:
            yield LocalTransport(plan.assignments, memory=memory, report=_report)
            return
        transport = RayTransport(
            plan.assignments,
            at_once=worker_count(ray, count),
            timeout_s=workers.timeout,
            memory=memory,
            report=_report,
        )
        with contextlib.closing(transport):
            yield transport


def _report(line: str) -> None:
    """Writes a line to stderr, above the progress bar."""
    from tqdm import tqdm

    tqdm.write(line, file=sys.stderr)


class _RoundBar:
    """A progress bar of rounds, with the last loss and success rate."""

    def __init__(self, rounds: int, progress: "FleetProgress | None", quiet: bool) -> None:
        done = 0 if progress is None else len(progress.rounds)
        self._bar = progress_bar(rounds, "round", initial=done, quiet=quiet)

    def update(self, progress: "FleetProgress") -> None:
        """Adds the last round."""
        from fleet_tools.baselines.training.rollouts import format_successes

        last = progress.rounds[-1]
        words = f"held-out loss {last.loss:.3g}"
        if last.rollouts:
            words += f", success {format_successes(last.rollouts)}"
        self._bar.set_postfix_str(words, refresh=False)
        self._bar.update()

    def __enter__(self) -> "_RoundBar":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()


PROGRAM = cli.Program("baselines.fleet", cli.Command(FleetOptions, _fleet))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())

"""Behaviour cloning: `python -m fleet_tools.baselines.train --dataset data/hammer ...`.

The same command resumes a stopped or killed run, and ends with the same bits.
"""

import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import pydantic

from fleet_tools.baselines.training.config import (
    Criterion,
    CurveOptions,
    DetectorOptions,
    PolicyOptions,
    TrainingConfig,
)
from fleet_tools.config.values import Count, CountOrZero, Number, Positive
from fleet_tools.parallel.interrupts import deferred_interrupt
from fleet_tools.utils import cli

# PyTorch is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.baselines.training.run import TrainingRunSpec
    from fleet_tools.baselines.training.targets import TrainingTarget


class TrainOptions(cli.Options):
    """Trains a policy to imitate demonstrations, or a keypoint detector, or resumes such a run.

    Exit codes:
    0: all epochs are done.
    1: the loss is no longer finite (the last good state is kept), or the disk is full or gone.
    2: it cannot begin.
    130: Ctrl-C.
    """

    dataset: Annotated[tuple[Path, ...], pydantic.Field(min_length=1)]
    """Folders of datasets, as `python -m fleet_tools.collect` makes them."""
    teacher: Path | None = None
    """Checkpoint of a teacher to imitate instead of the recorded actions, in all stored episodes,
    also failed ones (distillation)."""
    policy: PolicyOptions
    detector: DetectorOptions = DetectorOptions()
    output: Path
    """Folder of the run."""
    training: TrainingConfig = TrainingConfig()
    restart: bool = False
    """Begin anew; the former run in the folder is renamed to OUTPUT-former-1."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the computation; auto is a GPU if there is one."""
    threads: Count = 1
    """Number of threads; another number rounds sums differently."""
    save_every: Positive = 10.0
    """Time between two stored states, s; a kill loses at most this much."""
    validation_fraction: Annotated[Number, pydantic.Field(ge=0, lt=1)] = 0.1
    """Fraction of the episodes for validation, and not for training."""
    no_check: bool = False
    """Do not check the digests of the episodes' files, nor their values."""
    rollouts: CountOrZero = 0
    """Number of validation scenes of each task in which the policy is evaluated; 0 for none."""
    rollout_every: Count = 50
    """Number of epochs between these evaluations; the last epoch always has one."""
    rollout_workers: CountOrZero = 0
    """Number of processes of these evaluations; 0 for this one."""
    choose_by: Criterion = "loss"
    """Criterion for the best weights: the lowest validation loss, or the most successful rollouts.
    """
    curves: CurveOptions = CurveOptions()

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.choose_by == "rollouts" and self.rollouts == 0:
            raise ValueError(
                "--choose-by rollouts needs --rollouts, the number of rollouts in each task"
            )
        acts = self.teacher or self.rollouts or self.policy.observations
        if self.detector.keypoints and (acts or self.policy.like):
            raise ValueError(
                "--keypoints trains a keypoint detector, which reads clouds and returns no "
                "actions; leave out --teacher, --rollouts, --observations and --like"
            )
        return self


def _train(options: TrainOptions) -> int:
    from fleet_tools.baselines.training.reports import as_text

    code, summary = learn(options)
    options.report(summary, lambda: as_text(summary))
    return code


def learn(options: TrainOptions) -> tuple[int, dict[str, Any]]:
    """Trains once; returns the exit code and a summary."""
    from fleet_tools.baselines.training.record import TrainingWriter, restart
    from fleet_tools.baselines.training.reports import (
        EpochBar,
        epoch_point,
        open_curves,
        plan_text,
        summarize,
    )
    from fleet_tools.baselines.training.rollouts import make_success_measure
    from fleet_tools.baselines.training.run import Hooks, run
    from fleet_tools.baselines.training.state import DivergedError, TrainingProgress

    options.curves.require_libraries()
    target = _target(options)
    spec = _spec(options, target)
    measure_success = make_success_measure(
        options.dataset, options.rollouts, spec.blueprint, options.rollout_workers
    )
    _make_deterministic(spec)
    trajectories = target.trajectories(target.training, spec.device)
    held_out = None
    if target.validation is not None:
        held_out = target.trajectories(target.validation, spec.device)
    failure = None
    if not options.quiet:
        print(plan_text(spec, trajectories, held_out), file=sys.stderr)
    if options.restart and (former := restart(options.output)):
        print(f"The former run is kept in {former}.", file=sys.stderr)
    with TrainingWriter(options.output, spec) as writer:
        before = writer.load(trajectories)
        past = map(epoch_point, before.metrics)
        write_point = open_curves(options.curves, options.output, past)
        with (
            EpochBar(spec, before, options.quiet) as bar,
            deferred_interrupt() as interrupted,
        ):

            def after_epoch(progress: TrainingProgress) -> None:
                bar.update(progress)
                write_point(epoch_point(progress.metrics[-1]))

            hooks = Hooks(
                save=writer.save,
                measure_success=measure_success,
                after_batch=bar.refresh,
                after_epoch=after_epoch,
                stop=interrupted,
            )
            try:
                run(spec, trajectories, held_out, before, hooks, save_every_s=options.save_every)
            except (DivergedError, OSError, KeyboardInterrupt) as error:  # OSError: disk is full
                failure = error
        progress = writer.load(trajectories)  # from the disk: Ctrl-C may have come at any moment
    summary = summarize(options.output, spec, trajectories, before, progress)
    if isinstance(failure, DivergedError):
        print(f"Stopped: {failure}", file=sys.stderr)
        return cli.FAILED, summary
    if failure is not None or progress.state.epoch < spec.training.epochs:
        return cli.stopped(failure), summary
    return cli.OK, summary


def _target(options: TrainOptions) -> "TrainingTarget":
    from fleet_tools.baselines.training import targets

    config, model = options.policy.read()
    how: dict[str, Any] = {
        "fraction": options.validation_fraction,
        "seed": options.training.seed,
        "check": not options.no_check,
    }
    if options.detector.keypoints:
        return targets.keypoint_reading(options.dataset, config, options.detector.symmetry, **how)
    return targets.imitation(options.dataset, config, model, options.teacher, **how)


def _spec(options: TrainOptions, target: "TrainingTarget") -> "TrainingRunSpec":
    from fleet_tools.baselines.training.demonstrations import content_digest
    from fleet_tools.baselines.training.run import TrainingRunSpec, packages

    return TrainingRunSpec(
        datasets=tuple(str(folder) for folder in options.dataset),
        episodes=len(target.samples.episodes),
        content_digest=content_digest(target.samples),
        blueprint=target.blueprint,
        training=options.training,
        teacher=None if options.teacher is None else _digest(options.teacher),
        validation_fraction=options.validation_fraction,
        rollouts=options.rollouts,
        rollout_every=options.rollout_every,
        choose_by=options.choose_by,
        device=_device(options.device),
        threads=options.threads,
        packages=packages(),
    )


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()


def _device(name: Literal["auto", "cpu", "cuda"]) -> Literal["cpu", "cuda"]:
    import torch

    from fleet_tools.baselines.training.state import TrainingError

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise TrainingError("PyTorch finds no GPU here. Use --device cpu.")
    return name


def _make_deterministic(spec: "TrainingRunSpec") -> None:
    """Makes PyTorch compute the same bits each time."""
    import torch

    torch.set_num_threads(spec.threads)
    if spec.device == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


PROGRAM = cli.Program("baselines.train", cli.Command(TrainOptions, _train))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())

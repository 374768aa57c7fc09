"""Behaviour cloning: `python -m fleet_tools.baselines.train --data data/hammer --policy elman`.

The same command goes on with a training that was stopped or killed, and comes to the same bits.
"""

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet_tools.parallel.interrupts import patient_interrupt
from fleet_tools.utils import cli as programs
from fleet_tools.utils.machine import available_cores

# PyTorch is imported once the arguments are known to be good.
if TYPE_CHECKING:
    from fleet_tools.baselines.policies.blueprint import Blueprint
    from fleet_tools.baselines.training.experiment import Experiment
    from fleet_tools.baselines.training.record import Record
    from fleet_tools.baselines.training.trajectories import Trajectories
    from fleet_tools.dataset.samples import Samples


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    return programs.run(_parser(), _train, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = programs.argument_parser(
        "fleet_tools.baselines.train",
        "Trains a policy to do as demonstrations do; goes on with a training that was stopped.",
        "Exits with 0 when all epochs are done, 1 when the loss is no longer finite (the last good "
        "state is kept) or the disk failed, 2 when it cannot begin, 130 after Ctrl-C.",
    )
    parser.add_argument(
        "--data", metavar="DIR", type=Path, nargs="+", required=True,
        help="data sets, such as `python -m fleet_tools.collect` makes",
    )  # fmt: skip
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument(
        "--policy", metavar="NAME|FILE",
        help="mlp, elman, lstm, gru or transformer; with pointnet_ or resnet_ before it on clouds "
        "or pictures; or a PolicyConfig as JSON, FILE.json",
    )  # fmt: skip
    kind.add_argument(
        "--like", metavar="CHECKPOINT", type=Path,
        help="a policy of the same kind, that reads and scales as this one does, so that the two "
        "can be merged; its weights are not used",
    )  # fmt: skip
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="settings",
        help="of the policy, such as body.width=256 or clouds.widths=[64,128]; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--observations", metavar="NAME", nargs="+", help="entries that it reads (all)"
    )
    parser.add_argument("--output", metavar="DIR", type=Path, required=True)
    training = parser.add_argument_group("training")
    training.add_argument("--epochs", metavar="N", type=programs.positive_int, default=200)
    training.add_argument("--batch-size", metavar="STEPS", type=programs.positive_int, default=512)
    training.add_argument(
        "--learning-rate", metavar="RATE", type=programs.positive_float, default=1e-3
    )
    training.add_argument("--schedule", choices=["constant", "cosine"], default="constant")
    training.add_argument(
        "--gradient-norm", metavar="NORM", type=programs.positive_float, default=1.0,
        help="longer gradients are shortened to it (1)",
    )  # fmt: skip
    training.add_argument(
        "--seed", type=programs.seed, default=0, help="of weights, split and order (0)"
    )
    training.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    training.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    training.add_argument(
        "--threads", metavar="N", type=programs.positive_int,
        help="of the processor (all cores); another number rounds otherwise",
    )  # fmt: skip
    training.add_argument(
        "--save-every", metavar="SECONDS", type=programs.positive_float, default=10.0,
        help="what a kill costs (10)",
    )  # fmt: skip
    judging = parser.add_argument_group("judging")
    judging.add_argument(
        "--validation-share", metavar="SHARE", type=share, default=0.1,
        help="of the episodes, which it does not learn from (0.1)",
    )  # fmt: skip
    judging.add_argument(
        "--rollouts", metavar="N", type=programs.count, default=0,
        help="scenes in which it is tried now and then (0)",
    )  # fmt: skip
    judging.add_argument(
        "--rollout-every", metavar="K", type=programs.positive_int, default=50,
        help="after how many epochs, and at the end (50)",
    )  # fmt: skip
    judging.add_argument(
        "--rollout-workers", metavar="N", type=programs.count, default=0,
        help="processes that try it side by side; 0, the default, tries in this one",
    )  # fmt: skip
    return parser


def share(text: str) -> float:
    """An argument that is a part of a whole, but not the whole."""
    number = float(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 0 and below 1; given: {text}")
    return number


def _train(options: argparse.Namespace) -> int:
    from fleet_tools.baselines.training import experiment as experiments
    from fleet_tools.baselines.training import record as records
    from fleet_tools.baselines.training.errors import DivergedError
    from fleet_tools.baselines.training.rollouts import try_out_in
    from fleet_tools.baselines.training.run import Hooks, run
    from fleet_tools.baselines.training.trajectories import Trajectories
    from fleet_tools.dataset.samples import Samples

    like = options.like and _blueprint_to_follow(options)
    policy = (
        like.config
        if like
        else experiments.read_policy(options.policy, options.settings, options.observations)
    )
    samples = Samples(options.data, observations=policy.reads or None)
    parts = experiments.split(samples, options.validation_share, options.seed)
    blueprint = experiments.blueprint_of(policy, parts[0])
    if like:
        blueprint = experiments.require_alike(blueprint, like)
    experiment = _experiment(options, samples, blueprint)
    try_out = try_out_in(options.data, options.rollouts, blueprint, options.rollout_workers)
    _prepare(experiment)
    learned, judged = (
        None if part is None else Trajectories(part, blueprint, experiment.device) for part in parts
    )

    begin = records.open_folder(options.output, experiment)
    failed = None
    with _Progress(options, experiment, begin) as bar, patient_interrupt() as interrupted:
        save = partial(records.save, options.output, experiment)
        hooks = Hooks(save, try_out, bar.after_batch, bar.after_epoch, interrupted)
        try:
            run(experiment, learned, judged, begin, hooks, save_every_s=options.save_every)
        except (DivergedError, OSError, KeyboardInterrupt) as error:  # OSError: the disk is full
            failed = error
    record = records.open_folder(options.output, experiment)  # as it is on the disk
    summary = {"output": str(options.output), **_summary(experiment, learned, begin, record)}
    if options.json:
        print(json.dumps(summary))
    elif not options.quiet:
        print(_as_text(summary))
    if failed is None and record.state.epoch == experiment.training.epochs:
        return programs.OK
    stopped = failed is None or isinstance(failed, KeyboardInterrupt)
    remedy = "" if isinstance(failed, DivergedError) else " The same command goes on from here."
    print(f"Stopped: {'interrupted.' if stopped else failed}{remedy}", file=sys.stderr)
    return programs.INTERRUPTED if stopped else programs.NOT_WELL


def _blueprint_to_follow(options: argparse.Namespace) -> "Blueprint":
    from fleet_tools.baselines.policies.checkpoint import load_checkpoint
    from fleet_tools.errors import ConfigError

    if options.settings or options.observations:
        raise ConfigError(
            "--like says how the policy is built and what it reads. Leave out --set and "
            "--observations, or give --policy instead."
        )
    return load_checkpoint(options.like).blueprint


def _experiment(
    options: argparse.Namespace, samples: "Samples", blueprint: "Blueprint"
) -> "Experiment":
    import torch

    from fleet_tools.baselines.training import experiment as experiments
    from fleet_tools.baselines.training.config import TrainingConfig
    from fleet_tools.baselines.training.errors import TrainingError

    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    elif device == "cuda" and not torch.cuda.is_available():
        raise TrainingError("PyTorch finds no GPU here. --device cpu computes without one.")
    chosen = {name: getattr(options, name) for name in TrainingConfig.model_fields}
    return experiments.Experiment(
        data=[str(folder) for folder in options.data],
        episodes=len(samples.episodes),
        content_digest=experiments.content_digest(samples),
        blueprint=blueprint,
        training=TrainingConfig(**chosen),
        validation_share=options.validation_share,
        rollouts=options.rollouts,
        rollout_every=options.rollout_every,
        device=device,
        threads=options.threads or max(1, int(available_cores())),
        packages=experiments.packages(),
    )


def _prepare(experiment: "Experiment") -> None:
    """Makes PyTorch compute the same bits each time."""
    import torch

    torch.set_num_threads(experiment.threads)
    if experiment.device == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def _summary(
    experiment: "Experiment", learned: "Trajectories", begin: "Record", record: "Record"
) -> dict[str, Any]:
    best, metrics = record.best_metrics, record.metrics
    now = metrics[len(begin.metrics) + (begin.state.batch > 0) :]  # epochs that were done at once
    seconds = sum(each["seconds"] for each in now)
    rounds = len(now) / seconds if seconds else None
    batches = len(learned.order(experiment.training.batch_size, None))
    tried = [each["rollouts"] for each in metrics if each["rollouts"] is not None]
    return {
        "epochs": record.state.epoch,
        "loss": metrics[-1]["loss"] if metrics else None,
        "validation_loss": metrics[-1]["validation_loss"] if metrics else None,
        "best_epoch": best["epoch"] if best else None,
        "best_validation_loss": best["validation_loss"] if best else None,
        "rollouts": tried[-1] if tried else None,
        "samples": learned.steps,
        "samples_per_second": rounds and round(rounds * learned.steps, 1),
        "batches_per_second": rounds and round(rounds * batches, 2),
    }


def _as_text(summary: dict[str, Any]) -> str:
    lines = [f"{summary['output']}: {summary['epochs']} epochs over {summary['samples']} steps"]
    if summary["loss"] is not None:
        lines.append(f"  loss {summary['loss']:.3g}")
    if summary["best_epoch"] is not None:
        lines.append(
            f"  validation {summary['validation_loss']:.3g}; lowest "
            f"{summary['best_validation_loss']:.3g} after epoch {summary['best_epoch']}"
        )
    for task, came in (summary["rollouts"] or {}).items():
        lines.append(f"  {task}: {came['successes']} of {came['episodes']} scenes solved")
    if summary["samples_per_second"] is not None:
        lines.append(
            f"  {summary['samples_per_second']:.0f} steps learned from a second, in "
            f"{summary['batches_per_second']:.1f} batches"
        )
    return "\n".join(lines)


class _Progress:
    """The bar: epochs, losses, and the last rollouts."""

    def __init__(
        self, options: argparse.Namespace, experiment: "Experiment", record: "Record"
    ) -> None:
        from tqdm import tqdm

        epochs, quiet = experiment.training.epochs, options.quiet
        self._bar = tqdm(
            total=epochs, initial=record.state.epoch, unit="epoch", disable=quiet or None
        )
        self._rollouts = ""

    def after_batch(self) -> None:
        self._bar.update(0)

    def after_epoch(self, record: "Record") -> None:
        metrics = record.metrics[-1]
        if metrics["rollouts"]:
            came = [
                f"{each['successes']}/{each['episodes']}" for each in metrics["rollouts"].values()
            ]
            self._rollouts = f", solves {' '.join(came)}"
        judged = metrics["validation_loss"]
        words = f"loss {metrics['loss']:.3g}"
        words += "" if judged is None else f", validation {judged:.3g}"
        self._bar.set_postfix_str(words + self._rollouts, refresh=False)
        self._bar.update(1)

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()


if __name__ == "__main__":
    sys.exit(main())

"""A fleet learns at home: `python -m fleet_tools.baselines.fleet CONFIG.yaml --output runs/fleet`.

The same command goes on with one that was stopped or killed, and comes to the same bits.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_tools.utils import cli as programs

# PyTorch is imported once the arguments are known to be good.
if TYPE_CHECKING:
    from fleet_tools.baselines.federated.config import FleetConfig
    from fleet_tools.baselines.federated.plan import Plan
    from fleet_tools.baselines.federated.record import Record
    from fleet_tools.baselines.federated.transport import Hosts


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    return programs.run(_parser(), _fleet, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = programs.argument_parser(
        "fleet_tools.baselines.fleet",
        "Trains robots apart, each on data of its own, and merges what they learned.",
        "Exits with 0 when all rounds are done, 1 when a round has no robot left, numbers are no "
        "longer finite or the disk failed, 2 when it cannot begin, 130 after Ctrl-C.",
    )
    parser.add_argument(
        "config", metavar="CONFIG", type=Path,
        help="YAML; its keys are explained in baselines/fleet/config.py",
    )  # fmt: skip
    parser.add_argument("--output", metavar="DIR", type=Path, required=True)
    parser.add_argument(
        "--reference", metavar="NAME",
        help="what it is to be compared with instead: joint, single or task_specific",
    )  # fmt: skip
    late = "a robot's answer may take before the round goes on without it"
    programs.add_worker_options(parser, 3600.0, late)
    return parser


def _fleet(options: argparse.Namespace) -> int:
    import torch

    from fleet_tools.baselines.federated.plan import Plan
    from fleet_tools.baselines.federated.record import open_folder
    from fleet_tools.baselines.federated.run import complete
    from fleet_tools.baselines.training.rollouts import try_out_in
    from fleet_tools.errors import FleetToolsError

    torch.set_num_threads(1)  # as robots do, so that bits do not depend on the machine
    config = _config(options)
    plan = Plan.of(config)
    workers = programs.worker_keywords(options)["count"]
    try_out = try_out_in(config.data, config.rollouts, plan.blueprint, workers)
    open_folder(options.output, plan)
    with _hosts(options, plan) as hosts, _Progress(options, config) as bar:
        try:
            report = complete(
                plan, hosts, options.output, try_out=try_out, after_round=bar.after_round
            )
        except FleetToolsError as error:
            print(f"Stopped: {error}", file=sys.stderr)
            return programs.NOT_WELL
        except (OSError, KeyboardInterrupt) as reason:
            return programs.stopped(reason)
    if options.json:
        print(json.dumps({"output": str(options.output), **report}))
    elif not options.quiet:
        from fleet_tools.baselines.federated.summary import as_text

        print(as_text(str(options.output), report))
    return programs.OK


def _config(options: argparse.Namespace) -> "FleetConfig":
    from fleet_tools.baselines.federated.config import FleetConfig, reference
    from fleet_tools.config.values import load_yaml

    config = load_yaml(FleetConfig, options.config)
    return config if options.reference is None else reference(config, options.reference)


@contextlib.contextmanager
def _hosts(options: argparse.Namespace, plan: "Plan") -> Iterator["Hosts"]:
    from fleet_tools.baselines.federated.transport import LocalHosts, RayHosts
    from fleet_tools.parallel.cluster import connected

    assignments = [home.assignment for home in plan.homes]
    workers = programs.worker_keywords(options)
    count = workers["count"]
    with connected(count, workers["address"]) if count else contextlib.nullcontext() as ray:
        if ray is None:
            yield LocalHosts(assignments)
            return
        hosts = RayHosts(assignments, at_once=count, timeout_s=workers["timeout_s"])
        with contextlib.closing(hosts):
            yield hosts


class _Progress:
    """The bar: rounds, the last loss and rollouts."""

    def __init__(self, options: argparse.Namespace, config: "FleetConfig") -> None:
        from tqdm import tqdm

        self._bar = tqdm(total=config.rounds, unit="round", disable=options.quiet or None)

    def after_round(self, record: "Record") -> None:
        told = record.told[-1]
        words = f"held-out loss {told.loss:.3g}"
        if told.rollouts:
            came = [f"{each['successes']}/{each['episodes']}" for each in told.rollouts.values()]
            words += f", solves {' '.join(came)}"
        self._bar.set_postfix_str(words, refresh=False)
        self._bar.update(told.round - self._bar.n)

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()


if __name__ == "__main__":
    sys.exit(main())

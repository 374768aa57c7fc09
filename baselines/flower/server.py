"""The `ServerApp` of a fleet over Flower, like `python -m fleet_tools.baselines.fleet`.

A Flower app names it as `serverapp = "fleet_tools.baselines.flower.server:app"`. Its
`[tool.flwr.app.config]` has the keys of `ServerOptions`; `flwr run --run-config` changes them. The
same command resumes a stopped fleet.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import torch

from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.progress import FleetProgress
from fleet_tools.baselines.federated.record import FleetWriter
from fleet_tools.baselines.federated.run import complete
from fleet_tools.baselines.federated.summary import as_text
from fleet_tools.baselines.flower import flower
from fleet_tools.baselines.flower.nodes_plan import with_data_of_nodes
from fleet_tools.baselines.flower.protected_run import run_protected
from fleet_tools.baselines.flower.records import DataQuestion
from fleet_tools.baselines.flower.roster import Roster
from fleet_tools.baselines.flower.transport import FlowerTransport
from fleet_tools.baselines.training.rollouts import make_success_measure
from fleet_tools.config.values import Number, Positive, Value, load_yaml, parse

app = flower("serverapp").ServerApp()


class ServerOptions(Value):
    """Options of a run.

    Attributes:
        fleet: YAML file of the fleet, a `FleetConfig`, on the SuperLink's machine. Its `data` are
            the server's own: to scale inputs, and to measure losses of merged policies.
        output: Folder of the fleet, on the SuperLink's machine.
        wait_s: Time for nodes to come online, s. If nodes have their own data, the plan needs all
            of them once; otherwise robots of absent nodes are left out.
        timeout_s: Time limit of a robot's answer, s.
        protection: "none", "sums" or "noise", see `protection`.
        clip: With "noise", the largest L2 norm of a robot's change.
        noise: Likewise, the standard deviation of the noise in the sum of changes, in units of
            `clip`.
        delta: Likewise, the probability that differential privacy fails.
    """

    fleet: str
    output: str
    wait_s: Positive = 600.0
    timeout_s: Positive = 3600.0
    protection: Literal["none", "sums", "noise"] = "none"
    clip: Positive = 1.0
    noise: Positive = 1.0
    delta: Annotated[Number, pydantic.Field(gt=0, lt=1)] = 1e-5


@app.main()
def main(grid: Any, context: Any) -> None:
    """Runs all remaining rounds."""
    run_fleet(grid, context)


def run_fleet(grid: Any, context: Any) -> dict[str, Any]:
    """Runs all remaining rounds of a fleet, and returns the report.

    Args:
        grid: Flower's grid.
        context: Flower's context, with the options by name, with "-" or "_", as `run_config`.

    Raises:
        ConfigError: An option, the YAML file or the configuration of nodes does not fit.
        FleetToolsError, OSError: See `federated.run.complete` and `run_protected`.
    """
    given = {name.replace("-", "_"): value for name, value in context.run_config.items()}
    options = parse(ServerOptions, given, "The configuration of the run")
    torch.set_num_threads(1)  # as robots do, so that bits do not depend on the machine
    config = load_yaml(FleetConfig, Path(options.fleet))
    plan = FleetPlan.of(config)
    measure_success = make_success_measure(
        config.data, config.rollouts, plan.blueprint, detector=config.detector
    )
    roster = Roster(grid, DataQuestion(blueprint=plan.blueprint, by=config.split.by))
    plan = with_data_of_nodes(plan, roster.await_all(options.wait_s))
    if options.protection != "none":
        return run_protected(
            grid,
            context,
            plan,
            roster,
            Path(options.output),
            protection=options.protection,
            timeout_s=options.timeout_s,
            clip=options.clip,
            noise=options.noise,
            delta=options.delta,
        )
    transport = FlowerTransport(grid, plan.assignments, timeout_s=options.timeout_s, roster=roster)
    with FleetWriter(Path(options.output), plan) as writer:
        report = complete(
            writer, transport, measure_success=measure_success, after_round=_print_round
        )
    print(as_text(options.output, report), flush=True)
    return report


def _print_round(progress: FleetProgress) -> None:
    last = progress.rounds[-1]
    print(f"round {len(progress.rounds)}: held-out loss {last.loss:.3g}", flush=True)

"""What came of a fleet: `report.json`, and a few lines for who waits at the terminal."""

from typing import Any

from fleet_tools.baselines.federated.plan import Plan
from fleet_tools.baselines.federated.record import Record
from fleet_tools.baselines.training.loop import validate
from fleet_tools.baselines.training.trajectories import Trajectories

_SHOWN, _KINDS = 10, 3
"""How many are told in text of who was left out, and of each robot's kinds of episodes."""


def report_of(plan: Plan, record: Record) -> dict[str, Any]:
    """Returns the content of `report.json`, but for what is tried at the end.

    "traffic" counts what crossed between the driver and the robots in messages, "assignments" what
    each robot is told once, before the first: where its data lie, the blueprint, how to train.
    "data_at_home" are bytes of actions and of what the policy reads, not compressed; "curve" has
    a row for each round.
    """
    held = Trajectories(plan.held, plan.blueprint)
    config, last = plan.config, record.told[-1]
    everyone = [each for told in record.told for each in told.robots]
    robots = []
    for home in plan.homes:
        number = home.assignment.robot
        own = [each for each in everyone if each.robot == number]
        weights = record.robots.get(number)
        loss = weights and validate(plan.blueprint, held, config.training, weights)
        robots.append(
            {
                "robot": number,
                "episodes": len(home.assignment.episodes),
                "kinds": home.kinds,
                "data_bytes": home.data_bytes,
                "rounds": sum(each.left_out is None for each in own),
                "bytes_to_it": sum(each.bytes_to_it for each in own),
                "bytes_from_it": sum(each.bytes_from_it for each in own),
                "loss": next((each.loss for each in reversed(own) if each.loss is not None), None),
                "held_out_loss": loss,
            }
        )
    return {
        "method": config.method,
        "rounds": len(record.told),
        "epochs": last.epochs,
        "held_out": {
            "episodes": len(plan.held.episodes),
            "data_bytes": plan.held_bytes,
            "loss": last.loss,
        },
        "traffic": {
            "messages": sum(each.calls for each in everyone),
            "bytes_to_robots": sum(each.bytes_to_it for each in everyone),
            "bytes_from_robots": sum(each.bytes_from_it for each in everyone),
            "assignments": sum(len(home.assignment.to_json()) for home in plan.homes),
        },
        "data_at_home": sum(home.data_bytes for home in plan.homes),
        "rollouts": last.rollouts,
        "curve": [
            {
                "round": told.round,
                "bytes": told.bytes_so_far,
                "loss": told.loss,
                "moved": told.moved,
                "rollouts": told.rollouts,
            }
            for told in record.told
        ],
        "left_out": [
            {"round": told.round, "robot": each.robot, "reason": each.left_out}
            for told in record.told
            for each in told.robots
            if each.left_out is not None
        ],
        "robots": robots,
    }


def as_text(output: str, report: dict[str, Any]) -> str:
    """Returns the report in a few lines."""
    robots, per_round = len(report["robots"]), report["epochs"] // report["rounds"]
    lines = [
        f"{output}: {robots} robot{_s(robots)}, {report['method']}, {report['rounds']} "
        f"round{_s(report['rounds'])} of {per_round} epoch{_s(per_round)}",
        f"  held-out loss {report['held_out']['loss']:.3g}, over "
        f"{report['held_out']['episodes']} episodes",
    ]
    for each in report["robots"]:
        loss, apart = each["loss"], each["held_out_loss"]
        commonest = sorted(each["kinds"].items(), key=lambda item: -item[1])
        kinds = ", ".join(f"{count} {name}" for name, count in commonest[:_KINDS])
        if len(commonest) > _KINDS:
            kinds += f" and {len(commonest) - _KINDS} other kinds"
        lines.append(
            f"  robot {each['robot']}: {kinds}"
            + ("" if loss is None else f"; loss {loss:.3g}")
            + ("" if apart is None else f", held-out {apart:.3g}")
        )
    traffic = report["traffic"]
    lines.append(
        f"  {_size(traffic['bytes_to_robots'])} to robots and "
        f"{_size(traffic['bytes_from_robots'])} from them; {_size(report['data_at_home'])} of data "
        "stayed home"
    )
    lines += _rollouts("merged", report["rollouts"])
    for each in report["robots"]:
        lines += _rollouts(f"robot {each['robot']}", each.get("rollouts"))
    lines += _rollouts("fine-tuned", (report.get("fine_tuned") or {}).get("rollouts"))
    left_out = report["left_out"]
    lines += [
        f"  round {each['round']} went on without robot {each['robot']}: {each['reason']}"
        for each in left_out[:_SHOWN]
    ]
    if len(left_out) > _SHOWN:
        lines.append(f"  and {len(left_out) - _SHOWN} times more, in report.json")
    return "\n".join(lines)


def _rollouts(who: str, tried: dict[str, Any] | None) -> list[str]:
    return [
        f"  {who}, {task}: {came['successes']} of {came['episodes']} scenes solved"
        for task, came in (tried or {}).items()
    ]


def _s(count: int) -> str:
    return "s" * (count != 1)


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"

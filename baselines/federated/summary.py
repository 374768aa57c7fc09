"""The report of a fleet: `report.json`, and the same as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from fleet_tools.baselines.federated.plan import ClientData, FleetPlan
from fleet_tools.baselines.federated.progress import FleetProgress, RoundSummary

_LEFT_OUT_SHOWN, _KINDS_SHOWN = 10, 3
"""Most robots left out, and most kinds of episodes of a robot, in the text."""


def summarize(plan: FleetPlan, progress: FleetProgress) -> dict[str, Any]:
    """Returns the content of `report.json`, except for the policies evaluated at the end.

    Returns:
        "traffic" counts the messages between server and robots. Its "assignments" are the bytes
        sent to each robot once, before the first message. "data_at_home" is the size of the robots'
        data (`ClientData.data_bytes`). "curve" has an entry for each round. Of a streaming fleet,
        "robots" and "left_out" are empty, and "streaming" has their numbers.
    """
    rounds, last = progress.rounds, progress.rounds[-1]
    report = {
        "method": plan.config.method,
        "rounds": len(rounds),
        "epochs": last.epochs,
        "held_out": {
            "episodes": len(plan.held_out.episodes),
            "data_bytes": plan.held_out_bytes,
            "loss": last.loss,
        },
        "traffic": {
            **_traffic(rounds),
            "assignments": sum(len(assignment.to_json()) for assignment in plan.assignments),
        },
        "data_at_home": sum(client.data_bytes for client in plan.clients),
        "rollouts": last.rollouts,
        "curve": [_curve_entry(summary) for summary in rounds],
        "left_out": [
            {"round": summary.round, "robot": each.robot, "reason": each.left_out}
            for summary in rounds
            for each in summary.robots
            if each.left_out is not None
        ],
        "robots": [],
    }
    if plan.config.streaming is not None:
        return report | {"streaming": _streaming_entry(plan, rounds)}
    return report | {"robots": [_robot_entry(plan, progress, client) for client in plan.clients]}


def _traffic(rounds: Sequence[RoundSummary]) -> dict[str, int]:
    exchanged = [each for summary in rounds for each in summary.robots]
    tallies = [summary.tally for summary in rounds if summary.tally is not None]
    return {
        "messages": sum(each.messages for each in (*exchanged, *tallies)),
        "downloaded_bytes": sum(each.downloaded_bytes for each in exchanged)
        + sum(each.downloaded_bytes for each in tallies),
        "uploaded_bytes": sum(each.uploaded_bytes for each in exchanged)
        + sum(each.uploaded_bytes for each in tallies),
    }


def _streaming_entry(plan: FleetPlan, rounds: Sequence[RoundSummary]) -> dict[str, int]:
    """Returns the numbers of robots in all rounds."""
    tallies = [summary.tally for summary in rounds if summary.tally is not None]
    names = ("asked", "merged", "failed", "not_awaited", "came_late")
    counts = {name: sum(getattr(each, name) for each in tallies) for name in names}
    return {"robots": len(plan.clients), **counts}


def _curve_entry(summary: RoundSummary) -> dict[str, Any]:
    return {
        "round": summary.round,
        "bytes": summary.bytes_so_far,
        "loss": summary.loss,
        "moved": summary.moved_fraction,
        "rollouts": summary.rollouts,
    }


def _robot_entry(plan: FleetPlan, progress: FleetProgress, client: ClientData) -> dict[str, Any]:
    robot = client.assignment.robot
    own = [each for summary in progress.rounds for each in summary.robots if each.robot == robot]
    weights = progress.robot_weights.get(robot)
    return {
        "robot": robot,
        "episodes": len(client.assignment.episodes),
        "kinds": client.episode_counts,
        "data_bytes": client.data_bytes,
        "rounds": sum(each.left_out is None for each in own),
        "downloaded_bytes": sum(each.downloaded_bytes for each in own),
        "uploaded_bytes": sum(each.uploaded_bytes for each in own),
        "loss": next((each.loss for each in reversed(own) if each.loss is not None), None),
        "held_out_loss": None if weights is None else plan.held_out_loss(weights),
    }


def as_text(output: str, report: Mapping[str, Any]) -> str:
    """Returns the report in a few lines.

    Args:
        output: Folder of the fleet.
        report: Content of `report.json`.
    """
    streaming, rounds = report.get("streaming"), report["rounds"]
    robots = streaming["robots"] if streaming else len(report["robots"])
    epochs, held_out = report["epochs"] // rounds, report["held_out"]
    lines = [
        f"{output}: {robots} robot{_s(robots)}, {report['method']}, {rounds} round{_s(rounds)} of "
        f"{epochs} epoch{_s(epochs)}",
        f"  loss {held_out['loss']:.3g} on {held_out['episodes']} held-out "
        f"episode{_s(held_out['episodes'])}",
        *map(_robot_line, report["robots"]),
        *([_streaming_line(streaming)] if streaming else []),
    ]
    lines += _traffic_lines(report["traffic"], report["data_at_home"], robots)
    lines += _success_lines("merged policy", report["rollouts"])
    for each in report["robots"]:
        lines += _success_lines(f"policy of robot {each['robot']}", each.get("rollouts"))
    lines += _success_lines("combined policy", (report.get("combined") or {}).get("rollouts"))
    lines += _success_lines("distilled policy", (report.get("distilled") or {}).get("rollouts"))
    lines += _success_lines("fine-tuned policy", (report.get("fine_tuned") or {}).get("rollouts"))
    left_out = report["left_out"]
    lines += [
        f"  round {each['round']} without robot {each['robot']}: {each['reason']}"
        for each in left_out[:_LEFT_OUT_SHOWN]
    ]
    lines += [
        f"  combined policy without robot {each['robot']}: {each['reason']}"
        for each in (report.get("combined") or {}).get("left_out", ())
    ]
    if len(left_out) > _LEFT_OUT_SHOWN:
        lines.append(f"  and {len(left_out) - _LEFT_OUT_SHOWN} more, in report.json")
    return "\n".join(lines)


def _robot_line(robot: Mapping[str, Any]) -> str:
    loss, held_out_loss = robot["loss"], robot["held_out_loss"]
    commonest = sorted(robot["kinds"].items(), key=lambda item: -item[1])
    kinds = ", ".join(f"{count} {name}" for name, count in commonest[:_KINDS_SHOWN])
    if (more := len(commonest) - _KINDS_SHOWN) > 0:
        kinds += f" and {more} more kind{_s(more)}"
    return (
        f"  robot {robot['robot']}: {kinds}"
        + ("" if loss is None else f"; loss {loss:.3g}")
        + ("" if held_out_loss is None else f", on held-out episodes {held_out_loss:.3g}")
    )


def _streaming_line(streaming: Mapping[str, Any]) -> str:
    return (
        f"  {streaming['asked']} requests: {streaming['merged']} changes merged, "
        f"{streaming['not_awaited']} not awaited, {streaming['failed']} failed; "
        f"{streaming['came_late']} came late"
    )


def _traffic_lines(traffic: Mapping[str, int], raw: int, clients: int) -> list[str]:
    """Compares the uploads of all clients with the size of their raw data."""
    uploads, downloads = traffic["uploaded_bytes"], traffic["downloaded_bytes"]
    each = [f"{_size(total)} ({_size(total / clients)} a client)" for total in (uploads, downloads)]
    lines = [f"  uploads to the server {each[0]}, downloads from it {each[1]}"]
    if raw > 0:
        times = f"{uploads / raw:,.0f}" if uploads >= 10 * raw else f"{uploads / raw:.2g}"
        lines.append(
            f"  raw data of the clients {_size(raw)}, which the server did not get: the uploads "
            f"are {times} times as large"
        )
    return lines


def _success_lines(policy: str, rollouts: Mapping[str, Any] | None) -> list[str]:
    return [
        f"  {policy}, {task}: success in {each['successes']} of {each['episodes']} scenes"
        for task, each in (rollouts or {}).items()
    ]


def _s(count: int) -> str:
    return "s" * (count != 1)


def _size(count: float) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"

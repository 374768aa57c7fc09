"""Report of a life beside its rounds: stays, forgotten robots, and policies at home."""

from collections.abc import Sequence
from typing import Any

from fleet_merging.methods import registry
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.progress import FleetProgress
from fleet_tools.baselines.federated.record import KEPT, MONTHS, FleetWriter
from fleet_tools.baselines.federated.robot import local_data_holder
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint
from fleet_tools.baselines.policies.merged_checkpoints import checkpoint_problem
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.baselines.training.loop import validate
from fleet_tools.baselines.training.rollouts import SuccessMeasure
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.stored_episode import StoredEpisode
from fleet_tools.utils.statistics import auc


def life_report(
    writer: FleetWriter, progress: FleetProgress, measure_success: SuccessMeasure
) -> dict[str, Any]:
    """Returns the report of a life.

    Returns:
        "kept_tasks": tasks of robots that are not forgotten. "stays": for each robot its name,
            tasks and months, and whether it is "there" in the last month. "uploaded_in_a_month":
            the most bytes of a robot. "kept_bytes": bytes stored on the server at the end, without
            the policy.
        "forgotten": for each forgotten robot its month, and `told_apart` for the policy "before",
            "after" and at the "end". With the control "without", these policies never knew the
            robot.
        "personal": rollouts of the policies at home, for each robot that stays to the end; empty
            for ensembles.
    """
    plan, last = writer.plan, len(progress.rounds)
    assert plan.config.life is not None
    policies = [
        load_checkpoint(writer.folder / MONTHS / f"{k}.safetensors") for k in range(1, last + 1)
    ]
    exchanged = [each for month in progress.rounds for each in month.robots]
    report: dict[str, Any] = {
        "kept_tasks": plan.config.life.kept_tasks(_every(plan).episodes),
        "stays": [
            {
                "robot": stay.robot,
                "tasks": client.tasks,
                "months": stay.rounds,
                "there": stay.there,
            }
            for client in plan.clients
            if (stay := client.stay) is not None
        ],
        "uploaded_in_a_month": max((each.uploaded_bytes for each in exchanged), default=0),
        "kept_bytes": sum(path.stat().st_size for path in (writer.folder / KEPT).glob("*"))
        + plan.config.keeps
        * (not plan.config.frozen)
        * sum(each.nbytes for one in progress.robot_weights.values() for each in one.values()),
        "forgotten": [],
        "personal": [],
    }
    for robot, client in enumerate(plan.clients):
        month = client.stay.forgotten if client.stay is not None else None
        if month is not None and month > 1:
            moments = {
                "before": policies[month - 2],
                "after": policies[month - 1],
                "end": policies[-1],
            }
            tried = {name: told_apart(plan, robot, each) for name, each in moments.items()}
            report["forgotten"].append(
                {"robot": robot, "tasks": client.tasks, "month": month} | tried
            )
    if plan.config.personal_ridge and policies[-1].blueprint.config.gate is None:
        for robot in plan.participants(last):
            policy = personalize(plan, robot, policies[-1])
            entry = {"robot": robot, "tasks": plan.clients[robot].tasks}
            report["personal"].append(entry | {"rollouts": measure_success(policy)})
    return report


def personalize(plan: FleetPlan, robot: int, policy: Checkpoint) -> Checkpoint:
    """Returns a policy with a last layer fitted to a robot's own episodes, near the policy's.

    The robot computes it at home and sends nothing. It is `head_refit`'s fit; the policy's last
    layer has the weight `personal_ridge`.

    Args:
        plan: The fleet.
        robot: Number of the robot.
        policy: One network.
    """
    blueprint, size = policy.blueprint, plan.config.training.batch_size
    home = local_data_holder(blueprint, Trajectories(episodes_of(plan, robot), blueprint), size)
    problem = checkpoint_problem(blueprint, [policy.weights], [home], base=policy.weights)
    ridge = plan.config.personal_ridge
    merged = registry.merge("head_refit", problem, of="base", ridge=ridge)
    return Checkpoint(blueprint, merged.state)


def told_apart(plan: FleetPlan, robot: int, policy: Checkpoint) -> tuple[float, float, float]:
    """Returns how well a policy's loss tells a robot's episodes from held-out ones.

    A membership attack (Yeom et al. 2018). The held-out episodes have the robot's tasks, arms and
    tools.

    Returns:
        The area under the ROC curve and its 95% interval, see `auc`.
    """
    own = episodes_of(plan, robot)
    kinds = set(map(_kind, own.episodes))
    like = [k for k, each in enumerate(plan.held_out.episodes) if _kind(each) in kinds]
    others = episode_losses(plan, policy, plan.held_out.subset(like)) if like else []
    return auc([-each for each in episode_losses(plan, policy, own)], [-each for each in others])


def episodes_of(plan: FleetPlan, robot: int) -> Samples:
    """Returns the episodes of a robot."""
    return _every(plan).subset(plan.assignments[robot].episodes)


def _every(plan: FleetPlan) -> Samples:
    return Samples(plan.config.data, observations=list(plan.blueprint.observation))


def _kind(episode: StoredEpisode) -> tuple[str, str | None]:
    return episode.header.setting, episode.record.tool


def episode_losses(plan: FleetPlan, policy: Checkpoint, samples: Samples) -> Sequence[float]:
    """Returns a policy's mean loss over each episode that has a step to imitate."""
    found = []
    for number in range(len(samples.episodes)):
        one = samples.subset([number])
        if one.imitate.any():
            steps = Trajectories(one, policy.blueprint)
            found.append(validate(policy.blueprint, steps, plan.config.training, policy.weights))
    return found

"""Control runs for a fleet."""

from typing import Any

import pydantic

from fleet_tools.baselines.federated import REFERENCES
from fleet_tools.baselines.federated.config import FleetConfig, PartitionConfig
from fleet_tools.baselines.federated.life import Life
from fleet_tools.baselines.federated.round_config import ClosingConfig
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.config.values import parse
from fleet_tools.dataset import Dataset
from fleet_tools.envs.array_spec import ArraySpec, Layout
from fleet_tools.errors import ConfigError, UnknownNameError


def reference(config: FleetConfig, name: str) -> FleetConfig:
    """Returns a control run for a fleet; most train for as many epochs.

    Args:
        config: The fleet.
        name: "joint": one robot has all episodes. "joint_all_steps": likewise, with as many times
            more epochs as the fleet has robots. These are their total steps with `equal_steps`.
            "joint_wide": likewise, with the widest network that has no more parameters than all
            robots' together, see `widened`. "joint_ensemble": as many robots as in the fleet have
            all episodes, each with its own initial weights and order of batches. The policy
            averages their actions. "single": robots never merge, and train for as many steps as in
            the fleet; the results are their policies, `robots/N.safetensors`. "task_specific":
            robots never merge, and each has all episodes of a task. "task_specific_equal_steps":
            likewise, and each trains for at least the gradient steps of joint training. The
            schedule of its learning rate is stretched over the additional epochs
            (`FleetConfig.equal_steps`). A fleet with a life has "joint", "single", "last_month" and
            "sequential", see `Life.control`.

    Raises:
        UnknownNameError: There is no such reference.
        DatasetError: A dataset cannot be read.
        ConfigError: The policy has no width, see `widened`; or the reference is for other fleets.
    """
    if name not in REFERENCES:
        raise UnknownNameError("reference", name, REFERENCES)
    merged_once = {
        "method": "naive_average",
        "options": {},
        "later_method": None,
        "merge_every": None,
        "participation": 1.0,
        "server": None,
        "streaming": None,
        "closing": ClosingConfig(),
        "equal_steps": False,
        "uploads": None,
    }
    return config.model_copy(update=merged_once | _changes(config, name))


def _changes(config: FleetConfig, name: str) -> dict[str, Any]:
    # A control with all data scales inputs by them, regardless of the fleet's server.
    seen = {"public": (), "server_blind": False}
    pooled = bool(config.groups)
    joint = {"robots": 1, "split": PartitionConfig(pooled=pooled), **seen}
    unmerged = {"try_robots": True, "fine_tuning": None}
    controls = {"joint": "joint", "single": "alone"} | {k: k for k in ("last_month", "sequential")}
    if config.life is not None and name in controls:
        life = config.life.model_dump() | {"control": controls[name]}
        return {
            **(seen if name == "joint" else {}),
            "life": parse(Life, life, f"The reference {name}"),
            "last_method": None,
            "last_options": {},
            "frozen": False,
            "personal_ridge": 0.0,
            "try_robots": name == "single",
        }
    if config.life is not None or name in ("last_month", "sequential"):
        kind = "without a life is not" if config.life is None else "with a life is only"
        known = name if config.life is None else ", ".join(controls)
        raise ConfigError(f"A fleet {kind} compared with {known}. Leave {name} out.")
    headers = [Dataset(folder).header for folder in config.data]
    match name:
        case "joint":
            return joint
        case "joint_all_steps":
            epochs = config.robots * config.training.epochs
            return joint | {"training": config.training.model_copy(update={"epochs": epochs})}
        case "joint_wide":
            layout, action = headers[0].observation, headers[0].action
            return joint | {"policy": widened(config.policy, layout, action, config.robots)}
        case "joint_ensemble":
            return {
                **seen,
                "split": PartitionConfig(by="nothing", pooled=pooled),
                "initialization": "own",
                "last_method": "ensemble",
                "last_options": {},
                "distillation": None,
                "fine_tuning": None,
                "try_robots": False,
            }
        case "single":
            return unmerged | {"equal_steps": config.equal_steps}
    return {
        **unmerged,
        "try_robots": "own_tasks",
        "robots": len({header.setting for header in headers}),
        "split": PartitionConfig(by="task", alpha=None, pooled=pooled),
        "equal_steps": name == "task_specific_equal_steps",
    }


def widened(policy: PolicyConfig, layout: Layout, action: ArraySpec, times: int) -> PolicyConfig:
    """Returns a policy with the parameters of several, by a wider body.

    Args:
        policy: Configuration of one policy.
        layout: Layout of the available observations.
        action: Layout of an action.
        times: Number of policies.

    Returns:
        The widest one that has no more parameters than all of them together. Layers, encoders, and
        the heads and the feedforward part of a transformer stay.

    Raises:
        ConfigError: Its body has no width, or would exceed the largest width.
        LayoutError, UnknownNameError: The policy cannot read these observations.
    """
    width = getattr(policy.body, "width", None)
    if width is None or getattr(policy.body, "layers", 1) == 0:
        raise ConfigError(
            f"joint_wide widens a body, and this one, {policy.body.to_json()}, has no width. Leave "
            "the reference out, or give an arm of one robot with a policy of your choice."
        )

    def count(units: int) -> int:
        network = Blueprint.of(policy.of_width(units * step), layout, action).create_empty()
        return sum(each.numel() for each in network.parameters())

    step = getattr(policy.body, "heads", 1)  # which divide the width
    low, most = width // step, times * count(width // step)
    high = 2 * low
    try:
        while count(high) <= most:
            low, high = high, 2 * high
    except pydantic.ValidationError:
        raise ConfigError(
            f"A policy with the parameters of {times} would be wider than a body may be. Leave the "
            "reference joint_wide out."
        ) from None
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= most else (low, middle)
    return policy.of_width(low * step)

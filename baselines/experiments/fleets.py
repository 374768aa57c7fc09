"""The arenas of robots: fleets learn, are merged and are evaluated in rollouts."""

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from fleet_merging.errors import UnsoundMergeError
from fleet_tools.baselines.experiments.arena import may_fail
from fleet_tools.baselines.experiments.cells import Cells
from fleet_tools.baselines.experiments.form import Experiment, Run
from fleet_tools.baselines.experiments.life import life_measures
from fleet_tools.baselines.experiments.lines import Aligner, fleet_lines
from fleet_tools.baselines.experiments.success import by_scene, by_task, rates_by_task
from fleet_tools.baselines.federated import REFERENCES, central
from fleet_tools.baselines.federated.config import FleetConfig, PartitionConfig
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.record import (
    COMBINED,
    DISTILLED,
    MERGED,
    REPORT,
    FleetWriter,
)
from fleet_tools.baselines.federated.references import reference
from fleet_tools.baselines.federated.run import complete
from fleet_tools.baselines.federated.transport import CachingTransport, LocalTransport
from fleet_tools.baselines.metaworld.tasks import META_WORLD
from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.baselines.training.rollouts import make_success_measure
from fleet_tools.baselines.training.state import DivergedError, TrainingError
from fleet_tools.config.values import Count, Value, parse
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.stored_episode import file_digest
from fleet_tools.dataset.uploads import RawDataConfig
from fleet_tools.errors import ConfigError, DatasetError
from fleet_tools.registration import TOOL_USE
from fleet_tools.sim.splits import VALIDATION
from fleet_tools.storage.atomic_files import clear_old_leftovers
from fleet_tools.storage.strict_json import loads

FIRST_REPLIES = "first_replies"
"""Folder of robots' replies to the first round, shared by fleets that differ in their merges."""

FIRST_VALIDATION_SCENE = len(VALIDATION) // 2
"""Number of the first scene for choosing settings; all reported scenes come before it."""

SERVER = "server"
"""Reference that learns only from the server's data, see `central.learn`."""

BUDGET, RAW_DATA = "upload_budget", "raw_data"
"""Keys of runs outside of `FleetConfig`: each robot's upload budget in bytes, and the compression
of demonstrations (`RawDataConfig`). The server then learns from these instead of a merge."""

OF_SINGLE = ("best_single", "oracle_routing")
"""References that are other evaluations of the fleet "single", see `scene_successes`; they train
and run nothing."""

_OF_TASKS = ("task_specific", "task_specific_equal_steps")

Report = Mapping[str, Any]
"""Content of a fleet's `report.json`, see `federated.summary.summarize`."""

SceneSuccesses = dict[str, list[list[int]]]
"""By task, a row for each policy, with 1 for a solved scene and 0 for the others."""


@dataclass(frozen=True)
class PlannedFleet:
    """A fleet of an experiment.

    Attributes:
        arm: Name of the arm or the reference.
        config: Configuration of the fleet.
        first_scene: Number of the first scene of its evaluation.
        budget: Bytes that each robot may upload in all; None for any number.
        raw: Compression of raw data; None if robots send none.
        is_central: Whether only the server learns, and no robot trains.
        aligner: The method that aligns its robots' policies, for lines between them.
        former: Datasets of its backbone's tasks, in which its final policy is evaluated, too.
    """

    arm: str
    config: FleetConfig
    first_scene: int
    budget: int | None
    raw: RawDataConfig | None
    is_central: bool
    aligner: Aligner | None
    former: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Name of the fleet's folder, a hash of its configuration: the same in all experiments.

        A merge does not depend on the budget, which only decides whether its result counts.
        """
        text = self.config.to_json()
        if self.is_central:
            raw = None if self.raw is None else self.raw.to_json()
            text += json.dumps([SERVER, raw, self.budget if raw else None])
        name = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return f"{name}-{self.first_scene}" if self.first_scene else name

    @property
    def final(self) -> str:
        """Name of the file of the final policy in this folder."""
        if self.is_central:
            return central.POLICY
        if self.config.distillation is not None:
            return DISTILLED
        return MERGED if self.config.last_method is None else COMBINED


class _Held(Value):
    """Settings of a run outside of its fleet, see `BUDGET` and `RAW_DATA`."""

    upload_budget: Count | None = None
    raw_data: RawDataConfig | None = None


class Fleets:
    """An arena of robots; the keys of its runs are in `FleetConfig`, and `BUDGET` and `RAW_DATA`.

    If a robot of an arm uploads more bytes than the budget, only these bytes are measured. The
    budget does not bind references.

    With `lines`, lines join the robots' policies before their last merge. An arm's `method` and
    `options` then align them; its other keys are the fleet's.

    Args:
        experiment: The experiment.
    """

    references: ClassVar[tuple[str, ...]] = (*REFERENCES, *OF_SINGLE, SERVER)
    _env_arena = TOOL_USE

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._last: FleetPlan | None = None  # runs that differ only in budget follow each other
        torch.set_num_threads(1)  # as robots do, so that bits do not depend on the machine

    def plan(self, run: Run) -> PlannedFleet:
        """See `ExperimentArena`."""
        training = run.keys.get("training")
        seeded: dict[str, Any] = {
            "training": {**(training if isinstance(training, dict) else {}), "seed": run.seed},
            BUDGET: None,
            RAW_DATA: None,
        }
        own = {name: run.keys.get(name) for name in (BUDGET, RAW_DATA)}
        held = parse(_Held, own, f"The arm {run.title}")
        lines, aligner = self._experiment.lines, None
        # In a life, public data are of the fleet's tasks, which the matrix has already.
        has_former = run.keys.get("backbone") and not run.keys.get("life")
        public: Any = run.keys.get("public", ()) if has_former else ()
        if run.is_reference:
            held = _Held()
            config = run.parsed(FleetConfig, **seeded, method="naive_average")
            if run.arm == SERVER:  # learns the same beside any number of robots
                split = PartitionConfig(pooled=bool(config.groups))
                config = config.model_copy(update={"robots": 1, "split": split})
            else:
                config = reference(config, "single" if run.arm in OF_SINGLE else run.arm)
        elif held.raw_data is not None:
            config = run.parsed(FleetConfig, **seeded, method="naive_average")
        elif lines is None:
            config = run.parsed(FleetConfig, **seeded)
        else:
            aligned = run.parsed(FleetConfig, **seeded)
            aligner = Aligner(aligned.method, aligned.method_options())
            if aligned.method == "fleet_merge_soft" or aligner.options.get("soft"):
                raise ConfigError(
                    f"{aligned.method} permutes softly, which makes other policies of the trained "
                    "ones, and no line leads from one trained policy to the other. Leave the arm "
                    f"{run.title} out, or give fleet_merge."
                )
            config = run.parsed(FleetConfig, **seeded, method="naive_average", options={})
        scenes = config.rollouts if lines is None else lines.rollouts
        first = run.seed * scenes if self._experiment.own_scenes else 0
        if self._experiment.validation:
            first += FIRST_VALIDATION_SCENE
        is_central = held.raw_data is not None or (run.is_reference and run.arm == SERVER)
        if is_central and config.life is not None:
            raise ConfigError(
                f"{run.title} trains once on what the server has, and a life has months. Leave it "
                "out; the reference `joint` learns from all data."
            )
        budget, raw = held.upload_budget, held.raw_data
        return PlannedFleet(run.arm, config, first, budget, raw, is_central, aligner, tuple(public))

    def learns(self, plan: PlannedFleet) -> str:
        """See `ExperimentArena`."""
        return plan.folder

    def measure(self, plan: PlannedFleet, folder: Path) -> dict[str, Any]:
        """See `ExperimentArena`. A trained fleet is not trained again."""
        for each in plan.config.data:
            if (found := Dataset(each).header.env_spec.arena) is not self._env_arena:
                raise ConfigError(
                    f"{each} is a dataset of {found.name}, and not of {self._env_arena.name}. Give "
                    "the experiment another `arena`."
                )
        if self._last is None or self._last.config != plan.config:
            self._last = FleetPlan.of(plan.config)
        fleet = self._last
        report = self._train(plan, fleet, folder)
        lines = self._experiment.lines
        if lines is None or plan.aligner is None:
            found = measured(report, plan.arm)
            if plan.budget is None or found["uploaded"] <= plan.budget:
                return found | self._retained(plan, folder)
            return {name: found[name] for name in ("uploaded", "downloaded")}
        cells = Cells(folder / "cells")
        scenes = (plan.first_scene, lines.rollouts)
        with may_fail(DivergedError, UnsoundMergeError):
            found = fleet_lines(folder / plan.folder, fleet, plan.aligner, lines, scenes, cells)
        return {"lines": found}

    def _retained(self, plan: PlannedFleet, folder: Path) -> dict[str, Any]:
        """Returns the solved scenes of the final policy in its backbone's tasks."""
        if not plan.former or plan.config.rollouts == 0 or plan.config.try_robots is not False:
            return {}
        path, count = folder / plan.folder / plan.final, plan.config.rollouts
        settings = {"policy": file_digest(path), "tasks": plan.former, "first": plan.first_scene}
        if (detector := plan.config.detector) is not None:
            settings["detector"] = file_digest(Path(detector))

        def compute() -> dict[str, Any]:
            policy, first = load_checkpoint(path), plan.first_scene
            measure = make_success_measure(
                plan.former, count, policy.blueprint, first=first, detector=detector
            )
            return by_task(measure(policy))

        cells = Cells(folder / "cells")
        return {"retained": cells.get_or_compute(settings | {"scenes": count}, compute)}

    def _train(self, plan: PlannedFleet, fleet: FleetPlan, folder: Path) -> Report:
        clear_old_leftovers(folder / FIRST_REPLIES)
        with FleetWriter(folder / plan.folder, fleet) as writer:  # refuses changed data
            with contextlib.suppress(FileNotFoundError, ValueError):  # ValueError: damaged
                return loads((writer.folder / REPORT).read_text())
            if plan.is_central:
                raw, budget, first = plan.raw, plan.budget, plan.first_scene
                with may_fail(TrainingError, DivergedError, DatasetError):
                    return central.learn(fleet, raw, budget, writer.folder, first_scene=first)
            config = plan.config
            measure_success = make_success_measure(
                config.data,
                config.rollouts,
                fleet.blueprint,
                first=plan.first_scene,
                detector=config.detector,
            )
            transport = CachingTransport(
                LocalTransport(fleet.assignments), fleet.assignments, folder / FIRST_REPLIES
            )
            with may_fail(TrainingError, DivergedError, UnsoundMergeError):
                return complete(writer, transport, measure_success=measure_success)


class ToolUse(Fleets):
    """Fleets on the tasks of Fleet-Tools."""


class MetaWorld(Fleets):
    """Fleets on Meta-World's tasks."""

    _env_arena = META_WORLD


def measured(report: Report, arm: str) -> dict[str, Any]:
    """Returns the measurements of a fleet, as `ExperimentArena.measure` returns them.

    Args:
        report: The report.
        arm: Name of the arm or the reference.
    """
    tuned, loss = report.get("fine_tuned") or {}, _loss(report, arm)
    success, of_life = scene_successes(report, arm), {}
    if (life := report.get("life")) is not None:
        success = {task: success[task] for task in life["kept_tasks"] if task in success}
        of_life = life_measures(report)
    return {
        "success": success,
        **of_life,
        "fine_tuned": by_task(tuned.get("rollouts")),
        **({} if loss is None else {"loss": loss}),
        "bytes": _transferred(report),
        **{name: _most(report, f"{name}_bytes") for name in ("uploaded", "downloaded")},
        "data_at_home": report["data_at_home"],
        "curve": [
            {key: point[key] for key in ("round", "bytes", "loss", "moved")}
            | {"success": by_task(point["rollouts"])}
            for point in _curve(report)
        ],
    }


def scene_successes(report: Report, arm: str) -> SceneSuccesses:
    """Returns the scenes in which the policies of an arm succeeded.

    Args:
        report: Report of a fleet.
        arm: Name of the arm or the reference. "single": the policies of all robots.
            "task_specific", with equal steps or not: in each task, the policies of the robots with
            data of it. "best_single": the robot with the highest mean success rate over tasks. It
            is chosen in the reported scenes, so it is an upper bound. "oracle_routing": in each
            task, the robot with the most episodes of it. This needs no merge, but knowledge of the
            task and of all robots' data. Of equals, these take the robot with the lower number.
            Otherwise, it is the distilled policy if there is one, or else the combined or the
            merged one.
    """
    if arm not in ("single", *_OF_TASKS, *OF_SINGLE):
        return by_task((_beyond_merging(report) or report)["rollouts"])
    robots = _tried(report)
    if arm == "best_single":
        robots = _best(robots)
    rows: SceneSuccesses = {}
    for task in dict.fromkeys(task for robot in robots for task in robot["rollouts"]):
        tried = [robot for robot in robots if task in robot["rollouts"]]
        if arm in _OF_TASKS:
            tried = [robot for robot in tried if _episodes_of(task, robot)]
        elif arm == "oracle_routing":
            tried = [max(tried, key=lambda robot: _episodes_of(task, robot))]  # the first of equals
        if tried:
            rows[task] = [by_scene(robot["rollouts"][task]) for robot in tried]
    return rows


def _tried(report: Report) -> list[Report]:
    """Returns the robots with rollouts of their policies."""
    return [robot for robot in report["robots"] if robot.get("rollouts")]


def _best(robots: Sequence[Report]) -> list[Report]:
    """Returns the robot with the highest mean success rate over tasks; none of none."""

    def solved(robot: Report) -> float:
        return sum(rates_by_task(robot["rollouts"]).values())

    return [max(robots, key=solved)] if robots else []


def _episodes_of(task: str, robot: Report) -> int:
    """Returns a robot's number of episodes of a task; kinds begin with their setting."""
    setting = task.split()[0]
    return sum(count for kind, count in robot["kinds"].items() if kind.split()[0] == setting)


def _curve(report: Report) -> Sequence[Mapping[str, Any]]:
    """Returns the curve of a fleet; its last point is the final policy's."""
    final = _beyond_merging(report)
    if final is None:
        return report["curve"]
    *before, last = report["curve"]
    changes = {name: final[name] for name in ("loss", "rollouts")}
    return [*before, {**last, "bytes": _transferred(report), **changes}]


def _transferred(report: Report) -> int:
    parts = [report["traffic"], *(each["traffic"] for each in [report.get("combined")] if each)]
    return sum(each["downloaded_bytes"] + each["uploaded_bytes"] for each in parts)


def _most(report: Report, name: str) -> int:
    """Returns the most bytes of a robot; of a streaming fleet, the mean of all."""
    parts = [report, *(each for each in [report.get("combined")] if each)]
    robots: dict[int, int] = {}
    for part in parts:
        for each in part.get("robots", ()):
            robots[each["robot"]] = robots.get(each["robot"], 0) + each.get(name, 0)
    if streaming := report.get("streaming"):
        return report["traffic"][name] // streaming["robots"]
    return max(robots.values(), default=0)


def _beyond_merging(report: Report) -> Mapping[str, Any] | None:
    return report.get("distilled", report.get("combined"))


def _loss(report: Report, arm: str) -> float | None:
    if arm in (*_OF_TASKS, "oracle_routing"):  # a policy for one task is not meant for others
        return None
    if (final := _beyond_merging(report)) is not None:
        return final["loss"]
    if arm not in ("single", "best_single"):
        return report["held_out"]["loss"]
    robots = report["robots"] if arm == "single" else _best(_tried(report))
    return float(np.mean([robot["held_out_loss"] for robot in robots])) if robots else None

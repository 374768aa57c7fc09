"""Measures how large a defect of a model may be before the expert fails with it.

The bounds of the rules of `fleet_tools.assets.families` come from here: each line is one model with
one defect, what the rule measures of it, and in how many scenes the expert had success.

    python benchmarks/model_limits.py --sweep edge
"""

import math
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from console import print_now
from model_defects import (
    Change,
    blunt_edge,
    collision_changed,
    held_rolled,
    keypoints_moved,
    masses_changed,
    part_scaled,
    prism,
)

from fleet_tools.assets.families import find_family
from fleet_tools.assets.families.nut import FLATS
from fleet_tools.assets.families.wrench import CLEARANCE
from fleet_tools.assets.model_folder import write_model
from fleet_tools.assets.rules import measure_all
from fleet_tools.config.values import Count, Seed
from fleet_tools.sim.catalog import load_model
from fleet_tools.studio.checking.expert_trials import tasks_of, try_model
from fleet_tools.studio.checking.general_rules import find_rules, measure_model
from fleet_tools.utils import cli

BLADE_M = 0.0024
"""Distance from sole to face of the spatula `turner`, m."""


@dataclass(frozen=True)
class ModelSweep:
    """Models that differ in the size of one defect.

    Attributes:
        family, member: The model of the package that has the defect.
        rule: Name of the rule that measures it.
        defect: Returns the change that makes a defect of a size.
        sizes: Sizes, in the unit that the defect takes.
    """

    family: str
    member: str
    rule: str
    defect: Callable[[float], Change]
    sizes: tuple[float, ...]


def _face_turned(x: float, y: float) -> Callable[[float], Change]:
    """Returns the defect of a spatula's face turned by degrees, towards x and y."""

    def defect(degrees: float) -> Change:
        shift = BLADE_M * math.tan(math.radians(degrees))
        return keypoints_moved("face", by=(x * shift, y * shift, 0.0))

    return defect


SweepName = Literal[
    "edge", "rise", "roll", "sole", "opening", "corners", "flats", "knife", "face", "mass",
    "hammer_hand", "knife_hand", "pry_bar_hand", "screwdriver_hand", "spatula_hand", "wrench_hand",
]  # fmt: skip

SWEEPS: Mapping[str, ModelSweep] = {
    "edge": ModelSweep("spatula", "turner", "edge thickness", blunt_edge,
                  (0.0003, 0.0006, 0.0007, 0.0008, 0.0010, 0.0014)),
    "rise": ModelSweep("spatula", "turner", "rise of the sole towards the edge", _face_turned(1, 0),
                  (-4.9, -2, 0.25, 0.5, 1)),
    "roll": ModelSweep("spatula", "turner", "rise of the sole to a side", _face_turned(0, 1),
                  (0.5, 1, 2)),
    "sole": ModelSweep("spatula", "turner", "height of the underside above sole",
                  lambda z: keypoints_moved("sole", "face", by=(0, 0, z)),
                  (-0.0059, 0.0007, 0.0010, 0.0015, 0.003)),
    "opening": ModelSweep("wrench", "open_end", "opening between the pads",
                     lambda width: part_scaled("head", y=width / (FLATS + CLEARANCE)),
                     (0.0396, 0.0400, 0.0402, 0.0440, 0.0450, 0.0460)),
    "corners": ModelSweep("nut", "hex_nut", "width across corners by that across flats",
                     lambda sides: collision_changed("nut", prism(int(sides))), (6, 8, 10, 16)),
    "flats": ModelSweep("nut", "hex_nut", "width across flats",
                   lambda width: part_scaled("nut", width / FLATS, width / FLATS),
                   (0.0362, 0.0372, 0.0410, 0.0414)),
    "knife": ModelSweep("knife", "chef", "thickness of the edge",
                   lambda scale: part_scaled("blade", y=scale), (1, 6, 10, 13, 20)),
    "face": ModelSweep("hammer", "claw", "distance from the face along the blow",
                  lambda z: keypoints_moved("head", by=(0, 0, z)),
                  (-0.02, -0.01, -0.005, 0.005, 0.01)),
    "mass": ModelSweep("hammer", "claw", "density", lambda scale: masses_changed(scale, scale),
                  (0.00119, 0.01, 0.1, 4)),
    **{f"{family}_hand": ModelSweep(family, member, "tilt against the direction of use",
                                    held_rolled, (0, 45, 60, 75, 90, 105, 135, 180))
       for family, member in (("hammer", "claw"), ("knife", "chef"), ("pry_bar", "crowbar"),
                              ("screwdriver", "insulated"), ("spatula", "turner"),
                              ("wrench", "open_end"))},
}  # fmt: skip


class LimitOptions(cli.Options):
    """Measures how large a defect of a model may be before the expert fails with it.

    Exit codes:
    0: all is measured.
    2: it cannot begin.
    """

    sweep: SweepName | Literal["all"] = "all"
    """Defect that is measured."""
    scenes: Count = 6
    """Number of scenes with each model."""
    seed: Seed = 0
    """Seed of the first scene."""


def _measure(options: LimitOptions) -> int:
    names = list(SWEEPS) if options.sweep == "all" else [options.sweep]
    results: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        results[name] = []
        for size in SWEEPS[name].sizes:
            results[name].append(_result(SWEEPS[name], size, options))
            print_now(options, f"{name:8} {_line(results[name][-1])}")
    options.report({"sweeps": results}, lambda: f"{options.scenes} scenes with each model")
    return cli.OK


def _result(sweep: ModelSweep, size: float, options: LimitOptions) -> dict[str, Any]:
    made = find_family(sweep.family).member(sweep.member)
    made = replace(sweep.defect(size)(made), name="with_defect")
    with tempfile.TemporaryDirectory() as root:
        folder = made.folder(Path(root))
        write_model(made, folder)
        model = load_model(folder, made.kind)
        rules = [rule for rule in find_rules(made.kind, sweep.family) if rule.name == sweep.rule]
        measured = min(measure_all(rules, measure_model(model)), key=lambda each: each.holds)
        (task,) = tasks_of(model, None)
        seeds = range(options.seed, options.seed + options.scenes)
        trials = list(try_model(model, task, seeds))
    return {
        "size": size,
        "measured": measured.text,
        "holds": measured.holds,
        "scenes": len(trials),
        "successes": sum(trial.stage is None for trial in trials),
        "stages": sorted({trial.stage for trial in trials if trial.stage is not None}),
    }


def _line(result: Mapping[str, Any]) -> str:
    stages = f" ({', '.join(result['stages'])})" if result["stages"] else ""
    met = "met" if result["holds"] else "not met"
    return f"{result['successes']} of {result['scenes']}, rule {met}: {result['measured']}{stages}"


PROGRAM = cli.Program(
    "model_limits", cli.Command(LimitOptions, _measure), launcher="python benchmarks/"
)

if __name__ == "__main__":
    sys.exit(PROGRAM.main())

"""The program that checks a model: `python -m fleet_tools.assets check FOLDER`.

A stranger's model is loaded first in a process of its own, with limits on time and memory.
"""

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional

from fleet_tools.config.values import CountOrZero, Seed
from fleet_tools.errors import ConfigError, FleetToolsError
from fleet_tools.utils import cli
from fleet_tools.utils.progress import TallyBar

if TYPE_CHECKING:
    from pydrake.geometry import SceneGraph
    from pydrake.multibody.plant import MultibodyPlant

    from fleet_tools.sim.catalog import Model

MAX_SECONDS = 120
"""Longest processor time that a model may take to load, start of the process included."""

PATIENCE = 10
"""Longest wall time over processor time, on a busy machine."""

MAX_GIB = 4
"""Largest memory that it may take."""

_LOAD = """
import contextlib, resource, sys, warnings
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[2]),) * 2)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[3]),) * 2)
warnings.simplefilter("ignore")
from pathlib import Path
from fleet_tools.errors import FleetToolsError
from fleet_tools.studio.checking.program import load
with contextlib.suppress(FleetToolsError):  # typed errors are left to others
    load(Path(sys.argv[1]))
"""


def first_load_problem(
    folder: Path, max_seconds: int = MAX_SECONDS, max_gib: float = MAX_GIB
) -> str | None:
    """Loads a model in another process, and returns why that does not end well.

    None says that the model is loaded, or is refused with a message of its own.
    """
    limits = [str(int(max_gib * 2**30)), str(max_seconds)]
    command = [sys.executable, "-c", _LOAD, str(folder), *limits]
    too_long = f"Loading it takes longer than {max_seconds} s."
    try:
        child = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE * max_seconds
        )
    except subprocess.TimeoutExpired:
        return too_long
    if child.returncode < 0:
        killer = signal.Signals(-child.returncode)
        if killer in (signal.SIGXCPU, signal.SIGKILL):  # the limits of the processor time
            return too_long
        return f"Loading it ends the process ({killer.name}), with {max_gib:g} GiB of memory."
    if child.returncode > 0:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        return f"Loading it fails within {max_gib:g} GiB of memory: {last[:300]}"
    return None


def load(folder: Path) -> "tuple[MultibodyPlant, SceneGraph]":
    """Loads a model with its contact meshes as a world does, and measures it.

    Raises:
        FleetToolsError: The model is refused.
    """
    from fleet_tools.sim.add_models import add_model
    from fleet_tools.sim.contact_shapes import complete_contact
    from fleet_tools.studio.checking.general_rules import measure_model
    from fleet_tools.studio.importing.collision_geometry import empty_plant

    model = read_model(folder)
    plant, scene_graph, builder = empty_plant()
    instance = add_model(plant, scene_graph, model, model.labels.kind)
    complete_contact(plant, scene_graph, instance, model.file)
    plant.Finalize()
    builder.Build().CreateDefaultContext()
    measure_model(model)
    return plant, scene_graph


class CheckOptions(cli.Options):
    """Checks a tool or an object: measures it by its family's rules, and lets the expert use it.

    The model is loaded in a process of its own first, with limits on time and memory. The
    measurements are of its own collision geometry. Then the expert uses the model in a
    few scenes with models of the package; for those without success, the report tells the stage at
    which they failed.

    Exit codes:
    0: the model is as its family needs it, and the expert succeeded in every scene.
    1: it is not, or the expert failed; the report says in what, and how to mend it.
    2: the folder holds no model, or the task is not for its family.
    """

    folder: Annotated[Path, Positional]
    """Folder of the model."""
    task: str | None = None
    """Task in which it is tried, by name or by the path of its YAML file (default: the package's
    that use its family)."""
    scenes: CountOrZero = 4
    """Number of scenes in which the expert tries it; 0 only measures."""
    seed: Seed = 0
    """Seed of the first scene; the next scenes have the next seeds."""


def check_model(options: CheckOptions) -> int:
    """Does the work of the program, and returns the exit code."""
    report = make_report(options)
    options.report(report, lambda: report_text(report))
    return cli.OK if report["fine"] else cli.FAILED


def make_report(options: CheckOptions) -> dict[str, Any]:
    """Checks a model, and returns the report as plain JSON data; `fine` says whether all is well.

    Raises:
        ConfigError: The folder holds no model, or the task is not for its family.
    """
    from fleet_tools.studio.checking.expert_trials import tasks_of

    model = read_model(options.folder)
    tasks = tasks_of(model, options.task)
    problem = first_load_problem(model.file.parent)
    # What ends a process, or does not end, is not loaded in this one.
    unmeasured = {"error": problem, "measurements": [], "warnings": []}
    measured = unmeasured if problem else _measured(model)
    report = {
        "folder": str(options.folder),
        "kind": model.labels.kind,
        "family": model.labels.family,
        **measured,
        "trials": [
            _tried(model, task, options) for task in tasks if options.scenes and not problem
        ],
    }
    cause = _likely_cause(report)
    for tried in report["trials"]:
        tried["likely_cause"] = cause if tried["failures"] else None
    report["fine"] = (
        report["error"] is None
        and all(each["holds"] for each in report["measurements"])
        and not any(each["failures"] for each in report["trials"])
    )
    return report


def _likely_cause(report: Mapping[str, Any]) -> str | None:
    """Returns the broken rule that best explains why the expert fails; one of the grasp first."""
    from fleet_tools.studio.checking.general_rules import grasp_rules

    of_grasp = {rule.name for rule in grasp_rules(report["family"])}
    broken = [each for each in report["measurements"] if not each["holds"]]
    broken.sort(key=lambda each: each["name"] not in of_grasp)
    return broken[0]["text"] if broken else None


def read_model(folder: Path) -> "Model":
    """Reads the folder of a tool or an object.

    Raises:
        ConfigError: It is not one.
    """
    from fleet_tools.config.values import load_yaml
    from fleet_tools.sim.catalog import Keypoints, load_model

    labels = folder / "keypoints.yaml"
    if not labels.is_file():
        raise ConfigError(f"{folder} is not the folder of a model: it has no keypoints.yaml.")
    return load_model(folder.resolve(), load_yaml(Keypoints, labels).kind)


def _measured(model: "Model") -> dict[str, Any]:
    """Returns the measurements, or why the model cannot be read."""
    from fleet_tools.assets.rules import measure_all
    from fleet_tools.assets.usual_sizes import unusual
    from fleet_tools.studio.checking.general_rules import find_rules, measure_model

    kind, family = model.labels.kind, model.labels.family
    try:
        geometry = measure_model(model)
        measurements = measure_all(find_rules(kind, family), geometry)
    except FleetToolsError as error:
        return {"error": str(error), "measurements": [], "warnings": []}
    mass = sum(link.mass for link in geometry.links.values())
    return {
        "error": None,
        "measurements": [each.as_json() for each in measurements],
        "warnings": unusual(kind, family, geometry.length, mass),
    }


def _tried(model: "Model", task: str, options: CheckOptions) -> dict[str, Any]:
    from fleet_tools.studio.checking.expert_trials import counted, try_model

    trials = []
    with TallyBar(options.scenes, "scene", quiet=options.quiet) as bar:
        for trial in try_model(model, task, range(options.seed, options.seed + options.scenes)):
            trials.append(trial)
            bar.update(trial.outcome)
    return {
        "task": task,
        "scenes": len(trials),
        "successes": sum(trial.stage is None for trial in trials),
        "partners": sorted({trial.partner for trial in trials if trial.partner is not None}),
        "failures": counted(trials),
    }


def report_text(report: Mapping[str, Any]) -> str:
    """Returns a report of `make_report` for people."""
    lines = [f"{report['kind']} of the family {report['family']} in {report['folder']}"]
    if report["error"] is not None:
        lines.append(f"  FAILED  loading: {report['error']}")
    for each in report["measurements"]:
        lines.append(f"  {'ok    ' if each['holds'] else 'FAILED'}  {each['text']}")
        if not each["holds"]:
            lines += [f"          why: {each['reason']}", f"          mend: {each['remedy']}"]
    lines += [f"  warning {words}" for words in report["warnings"]]
    for tried in report["trials"]:
        state = "FAILED" if tried["failures"] else "ok    "
        lines.append(
            f"  {state}  the expert in the task {tried['task']}: {tried['successes']} of "
            f"{tried['scenes']} scenes, with {', '.join(tried['partners']) or 'nothing'}"
        )
        for stage, failures in tried["failures"].items():
            example = failures["example"]
            where = f"seed {example['seed']} with {example['partner'] or 'an unknown model'}"
            lines.append(
                f"          {failures['count']} failed at the stage: {stage}; such as {where}"
            )
            lines.append(f"          {example['outcome']}: {example['why']}")
        if tried["likely_cause"]:
            lines.append(f"          likely cause: {tried['likely_cause']}")
    if not report["trials"]:
        lines.append("  the expert has not tried it; --task and --scenes choose where it does")
    return "\n".join(lines)

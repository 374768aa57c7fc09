"""The first load of a stranger's model, in a process of its own with limits on time and memory."""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydrake.multibody.plant import MultibodyPlant

MAX_SECONDS = 120
"""Longest processor time that a model may take to load, start of the process included."""

PATIENCE = 10
"""Longest wall time over processor time, on a busy machine."""

MAX_GIB = 4
"""Largest memory that it may take."""

_LOAD = """
import resource, sys, warnings
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[2]),) * 2)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[3]),) * 2)
warnings.simplefilter("ignore")
from pathlib import Path
from fleet_tools.studio.checking.first_load import load_alone
load_alone(Path(sys.argv[1]))
"""


def first_load_problem(
    folder: Path, max_seconds: int = MAX_SECONDS, max_gib: float = MAX_GIB
) -> str | None:
    """Loads a model in another process, and returns why that does not end well.

    Args:
        folder: Folder of the model.
        max_seconds: Longest processor time.
        max_gib: Largest memory.

    Returns:
        What happened; None if the model is loaded, or is refused with a message of its own.
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


def load_alone(folder: Path) -> None:
    """Loads a model, see `load`; typed errors are left to others."""
    from fleet_tools.errors import FleetToolsError

    with contextlib.suppress(FleetToolsError):
        load(folder)


def load(folder: Path) -> "MultibodyPlant":
    """Loads a model with its contact meshes as a world does, and measures it.

    Raises:
        FleetToolsError: The model is refused.
    """
    from pydrake.multibody.plant import AddMultibodyPlant, MultibodyPlantConfig
    from pydrake.systems.framework import DiagramBuilder

    from fleet_tools.config.control import TIME_STEP
    from fleet_tools.sim.add_models import add_model
    from fleet_tools.sim.contact_shapes import complete_contact
    from fleet_tools.studio.checking.measure_model import measure_model
    from fleet_tools.studio.checking.program import read_model

    model = read_model(folder)
    builder = DiagramBuilder()
    plant, scene_graph = AddMultibodyPlant(MultibodyPlantConfig(time_step=TIME_STEP), builder)
    instance = add_model(plant, scene_graph, model, model.labels.kind)
    complete_contact(plant, scene_graph, instance, model.file)
    plant.Finalize()
    builder.Build().CreateDefaultContext()
    measure_model(model)
    return plant

"""Asking Drake whether it can make contact of a model, before anyone runs it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path


def contact_problem(contents: Mapping[str, bytes]) -> str | None:
    """Builds the contact fields of a model folder as the simulator would.

    Args:
        contents: Relative path -> content, with a `model.sdf`.

    Returns:
        Why Drake cannot, or None if every collision shape has its hydroelastic mesh.
    """
    from pydrake.geometry import Role, SceneGraphConfig
    from pydrake.multibody.parsing import Parser
    from pydrake.multibody.plant import AddMultibodyPlant, MultibodyPlantConfig
    from pydrake.systems.framework import DiagramBuilder

    from fleet_tools.sim.world import HYDROELASTIC_MARGIN, TIME_STEP

    builder, config = DiagramBuilder(), SceneGraphConfig()
    config.default_proximity_properties.margin = HYDROELASTIC_MARGIN
    plant, scene_graph = AddMultibodyPlant(
        MultibodyPlantConfig(time_step=TIME_STEP), config, builder
    )
    with tempfile.TemporaryDirectory() as folder:
        for path, content in contents.items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_bytes(content)
        try:
            Parser(plant).AddModels(str(Path(folder) / "model.sdf"))
            plant.Finalize()
            context = scene_graph.GetMyContextFromRoot(builder.Build().CreateDefaultContext())
        except RuntimeError as error:
            return str(error)
    inspector = scene_graph.get_query_output_port().Eval(context).inspector()
    missing = [
        inspector.GetName(shape)
        for shape in inspector.GetAllGeometryIds(Role.kProximity)
        if inspector.maybe_get_hydroelastic_mesh(shape) is None
    ]
    return f"no hydroelastic mesh was made of {', '.join(missing)}" if missing else None

"""Check that Drake can make the contact geometry of a model."""

import tempfile
from collections.abc import Mapping
from pathlib import Path


def contact_error(files: Mapping[str, bytes]) -> str | None:
    """Makes the hydroelastic geometry of a model folder as the simulator would.

    Args:
        files: Content of the folder's files by relative path, with a `model.sdf`.

    Returns:
        The reason why Drake cannot, or None if every collision shape has its hydroelastic mesh.
    """
    from pydrake.geometry import Role, SceneGraphConfig
    from pydrake.multibody.parsing import Parser
    from pydrake.multibody.plant import AddMultibodyPlant, MultibodyPlantConfig
    from pydrake.systems.framework import DiagramBuilder

    from fleet_tools.config.control import TIME_STEP
    from fleet_tools.sim.world import HYDROELASTIC_MARGIN

    builder, config = DiagramBuilder(), SceneGraphConfig()
    config.default_proximity_properties.margin = HYDROELASTIC_MARGIN
    plant, scene_graph = AddMultibodyPlant(
        MultibodyPlantConfig(time_step=TIME_STEP), config, builder
    )
    with tempfile.TemporaryDirectory() as folder:
        for path, content in files.items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_bytes(content)
        try:
            Parser(plant).AddModels(Path(folder) / "model.sdf")
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
    return f"there is no hydroelastic mesh of {', '.join(missing)}." if missing else None

"""A plant with one generated object, to measure how the brake of its joint resists."""

import tempfile
from pathlib import Path

import numpy as np
from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import AddMultibodyPlantSceneGraph
from pydrake.systems.analysis import Simulator
from pydrake.systems.framework import DiagramBuilder

from fleet_tools.assets.model_description import ModelDescription
from fleet_tools.assets.model_folder import write_model


class Bench:
    """One object, its first link welded to the world, and its brake active."""

    def __init__(self, model: ModelDescription) -> None:
        builder = DiagramBuilder()
        self.plant, self.scene_graph = AddMultibodyPlantSceneGraph(builder, 0.004)
        parser = Parser(self.plant)
        parser.SetStrictParsing()
        with tempfile.TemporaryDirectory() as root:
            folder = Path(root) / model.name
            write_model(model, folder)
            (self.instance,) = parser.AddModels(folder / "model.sdf")
        fixed = self.plant.GetFrameByName(model.links[0].name, self.instance)
        self.plant.WeldFrames(self.plant.world_frame(), fixed)
        self.plant.Finalize()
        self.diagram = builder.Build()

    def press(self, effort: float, seconds: float) -> float:
        """Loads the joint of the object in its initial state.

        Args:
            effort: Force along a prismatic joint, N, in addition to the weight, or torque about a
                revolute joint, N m.
            seconds: Duration, s.

        Returns:
            Displacement of the joint, m or rad.
        """
        simulator = Simulator(self.diagram)
        context = self.plant.GetMyMutableContextFromRoot(simulator.get_mutable_context())
        brake = self.plant.get_desired_state_input_port(self.instance)
        brake.FixValue(context, np.zeros(2))
        self.plant.get_applied_generalized_force_input_port().FixValue(context, [effort])
        simulator.AdvanceTo(seconds)
        return self.plant.GetPositions(context)[0]

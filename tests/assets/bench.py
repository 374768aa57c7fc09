"""A bench in Drake's own plant, for objects whose one joint a brake holds."""

import tempfile
from pathlib import Path

import numpy as np
from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import AddMultibodyPlantSceneGraph
from pydrake.systems.analysis import Simulator
from pydrake.systems.framework import DiagramBuilder

from fleet_tools.assets.model import Model, write


class Bench:
    """One object, its first link fixed, its brake armed."""

    def __init__(self, model: Model) -> None:
        builder = DiagramBuilder()
        self.plant, self.scene_graph = AddMultibodyPlantSceneGraph(builder, 0.004)
        parser = Parser(self.plant)
        parser.SetStrictParsing()
        with tempfile.TemporaryDirectory() as folder:
            write(model, Path(folder) / model.name)
            (self.instance,) = parser.AddModels(str(Path(folder) / model.name / "model.sdf"))
        fixed = self.plant.GetFrameByName(model.links[0].name, self.instance)
        self.plant.WeldFrames(self.plant.world_frame(), fixed)
        self.plant.Finalize()
        self.diagram = builder.Build()

    def press(self, effort: float, seconds: float) -> float:
        """Loads the joint of a fresh object; returns how far it went, m or rad.

        Args:
            effort: N along a slide, in addition to the weight; N m about a hinge.
            seconds: For how long.
        """
        simulator = Simulator(self.diagram)
        context = self.plant.GetMyMutableContextFromRoot(simulator.get_mutable_context())
        brake = self.plant.get_desired_state_input_port(self.instance)
        brake.FixValue(context, np.zeros(2))
        self.plant.get_applied_generalized_force_input_port().FixValue(context, [effort])
        simulator.AdvanceTo(seconds)
        return self.plant.GetPositions(context)[0]

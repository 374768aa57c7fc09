"""The Panda arm in a plant: where its model is, and the names by which the rest knows it."""

from typing import Literal

from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import ModelInstanceIndex

from fleet_tools.utils.resources import assets_root

END_EFFECTOR = "panda_hand_tcp"
"""Frame E: between the finger tips, z pointing away from the palm, y along the fingers' closing."""

NUM_JOINTS = 7

Visuals = Literal["light", "franka"]


def add_panda(plant: MultibodyPlant, visuals: Visuals = "light") -> ModelInstanceIndex:
    """Adds the arm, its base fixed to the world's origin.

    Args:
        plant: Before `Finalize`.
        visuals: "light" for this project's own meshes; "franka" for the manufacturer's, which
            Drake downloads as `package://drake_models` when it has not got them yet.
    """
    file = {"light": "panda.urdf", "franka": "panda_franka_visuals.urdf"}[visuals]
    (arm,) = Parser(plant).AddModels(str(assets_root() / "robots" / "panda" / file))
    plant.WeldFrames(plant.world_frame(), plant.GetFrameByName("panda_link0", arm))
    return arm

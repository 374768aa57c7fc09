"""The Panda arm: its model file and the names of its frames."""

from typing import Literal

from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import ModelInstanceIndex

from fleet_tools.config.file_access import assets_root

END_EFFECTOR = "panda_hand_tcp"
"""Frame E: between the finger tips, z away from the palm, y along the closing of the fingers."""

NUM_JOINTS = 7

Visuals = Literal["light", "franka"]


def add_panda(plant: MultibodyPlant, visuals: Visuals = "light") -> ModelInstanceIndex:
    """Adds the arm, with its base fixed to the world's origin.

    Args:
        plant: Plant that is not finalized yet.
        visuals: "light" for this project's own meshes; "franka" for the manufacturer's, which
            Drake downloads as `package://drake_models` unless they are there.
    """
    file = {"light": "panda.urdf", "franka": "panda_franka_visuals.urdf"}[visuals]
    (arm,) = Parser(plant).AddModels(assets_root() / "robots" / "panda" / file)
    plant.WeldFrames(plant.world_frame(), plant.GetFrameByName("panda_link0", arm))
    return arm

"""Adds the models of tools and objects to a plant."""

import math
import os
import re
from html import escape, unescape
from pathlib import Path
from typing import Literal

from pydrake.geometry import SceneGraph
from pydrake.math import RigidTransform
from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import FixedOffsetFrame, Frame, ModelInstanceIndex

from fleet_tools.errors import ConfigError
from fleet_tools.robot.arm_model import PARSER_ERRORS
from fleet_tools.sim.catalog import Model
from fleet_tools.sim.contact_shapes import contact_surface_error
from fleet_tools.sim.model_xml import check_masses, path_of, read_model_xml
from fleet_tools.sim.visual_meshes import complete_visuals


def add_tool(
    plant: MultibodyPlant, scene_graph: SceneGraph, tool: Model, hand: Frame
) -> tuple[ModelInstanceIndex, FixedOffsetFrame]:
    """Adds the tool to a plant that has the arm; the hand holds it.

    Args:
        plant: Plant that is not finalized yet.
        scene_graph: Its scene graph.
        tool: Model of the tool.
        hand: Frame E of the end effector.

    Returns:
        The tool's instance, and its grasp frame G, with an adjustable pose X_EG.

    Raises:
        FleetToolsError: The model cannot be read or drawn, or it is not complete.
    """
    instance = add_model(plant, scene_graph, tool, "tool")
    X_TG = tool.labels.grasp.to_transform()
    held = plant.AddFrame(FixedOffsetFrame("held", model_frame(plant, instance), X_TG))
    grasp = plant.AddFrame(FixedOffsetFrame("grasp", hand, RigidTransform()))
    plant.WeldFrames(grasp, held)
    return instance, grasp


def add_object(
    plant: MultibodyPlant,
    scene_graph: SceneGraph,
    object: Model,
    mount: Literal["fixed", "free"],
    number: int = 0,
) -> tuple[ModelInstanceIndex, FixedOffsetFrame | None]:
    """Adds the object to a plant.

    Args:
        plant: Plant that is not finalized yet.
        scene_graph: Its scene graph.
        object: Model of the object.
        mount: Whether it is fixed to the world.
        number: Number of objects before it; names tell them apart.

    Returns:
        The object's instance, and the frame with which it is fixed to the world, with an adjustable
        pose X_WO; None if it is free.

    Raises:
        FleetToolsError: The model cannot be read or drawn, or it is not complete.
    """
    suffix = f"_{number + 1}" if number else ""
    instance = add_model(plant, scene_graph, object, f"object{suffix}")
    if mount == "free":
        return instance, None
    frame = plant.AddFrame(
        FixedOffsetFrame(f"mount{suffix}", plant.world_frame(), RigidTransform())
    )
    plant.WeldFrames(frame, model_frame(plant, instance))
    return instance, frame


def add_model(
    plant: MultibodyPlant, scene_graph: SceneGraph, model: Model, role: str
) -> ModelInstanceIndex:
    """Adds a model to a plant, without connecting it to anything.

    Args:
        plant: Plant that is not finalized yet.
        scene_graph: Its scene graph.
        model: The model.
        role: Prefix of its name.

    Raises:
        FleetToolsError: The model cannot be read or drawn, or it is not complete.
    """
    check_masses(model.file)
    parser = Parser(plant, model_name_prefix=role)  # a tool and an object may share a name
    try:
        # From a string, Drake reads a model in under a millisecond; from a file, in nearly 40.
        parser.package_map().Add(_PACKAGE, model.file.parent.absolute())
        instances = parser.AddModelsFromString(
            _with_package_uris(model.file), model.file.suffix.removeprefix(".")
        )
    except PARSER_ERRORS as error:
        if "mesh field element" in str(error):
            raise contact_surface_error(error, [model.file]) from error
        raise ConfigError(f"Drake cannot read {model.file}: {error}") from error
    if len(instances) != 1:
        names = ", ".join(map(plant.GetModelInstanceName, instances))
        raise ConfigError(
            f"{model.file} must hold exactly one model, without nested models; it holds {names}. "
            "Move all links and joints into one model."
        )
    for name, keypoint in model.labels.keypoints.items():
        if not plant.HasBodyNamed(keypoint.link, instances[0]):
            links = [plant.get_body(i).name() for i in plant.GetBodyIndices(instances[0])]
            raise ConfigError(
                f"{model.file.parent / 'keypoints.yaml'}: keypoint {name!r} is on the link "
                f"{keypoint.link!r}, which does not exist in the model. Its links: "
                f"{', '.join(links)}."
            )
    _limit_screws(plant, instances[0], model.file)
    complete_visuals(plant, scene_graph, instances[0], model.file)
    return instances[0]


def model_frame(plant: MultibodyPlant, instance: ModelInstanceIndex) -> Frame:
    """Returns the frame in which a model is placed: SDFormat's, or URDF's root link."""
    if plant.HasFrameNamed("__model__", instance):
        return plant.GetFrameByName("__model__", instance)
    joints = map(plant.get_joint, plant.GetJointIndices(instance))
    children = {joint.child_body().index() for joint in joints}
    roots = [body for body in plant.GetBodyIndices(instance) if body not in children]
    return plant.get_body(roots[0]).body_frame()


def _limit_screws(plant: MultibodyPlant, instance: ModelInstanceIndex, file: Path) -> None:
    """Gives screw joints the limits in their file, which Drake's parser leaves out.

    Raises:
        ConfigError: They cannot be read.
    """
    joints = [plant.get_joint(index) for index in plant.GetJointIndices(instance)]
    screws = [joint for joint in joints if joint.type_name() == "screw"]
    if not screws:
        return
    elements = {element.get("name"): element for element in read_model_xml(file).iter("joint")}
    for joint in screws:
        texts = [
            elements[joint.name()].findtext(f"axis/limit/{end}", default)
            for end, default in (("lower", "-inf"), ("upper", "inf"))
        ]
        try:
            low, high = map(float, texts)
        except ValueError:
            low, high = math.nan, math.nan
        if not low <= high:
            raise ConfigError(
                f"{file}: the screw joint {joint.name()} has the limits {', '.join(texts)}; give a "
                "lower and an upper limit, rad."
            )
        joint.set_position_limits([low], [high])


_PACKAGE = "model_folder"

_URIS = (
    re.compile(r"(<(uri|drake:diffuse_map)>\s*)([^<]+?)(\s*</)"),
    re.compile(r"""(\bfilename\s*=\s*(["'])\s*)(.+?)(\s*\2)"""),
)
"""URIs of SDFormat and of URDF, the third group, between what stands before and after them."""


def _with_package_uris(file: Path) -> str:
    """Returns the text of a file whose relative URIs begin with the package of its folder.

    So the folder's own name is neither XML nor a URI, whatever its characters are.
    """

    def packaged(match: re.Match[str]) -> str:
        path = path_of(unescape(match[3]))
        if path is None:
            return match[0]
        root = "file://" if os.path.isabs(path) else f"package://{_PACKAGE}/"
        return f"{match[1]}{root}{escape(path)}{match[4]}"

    text = file.read_text(encoding="utf-8-sig")
    for pattern in _URIS:
        text = pattern.sub(packaged, text)
    return text

"""The folder of a new task: a task file, a tool, and an object with a joint.

A presser in the hand pushes a button into its block, which the expert solves. The files are there
to be replaced one by one: other models, other keypoints, another success, another plan.
"""

from fleet_tools.assets.model_description import (
    BEECH,
    NYLON,
    PINE,
    STEEL,
    JointDescription,
    KeypointDescription,
    LinkDescription,
    ModelDescription,
    PartDescription,
    jointed_model,
)
from fleet_tools.assets.model_folder import model_files
from fleet_tools.assets.parametric import GRIP, along_x
from fleet_tools.assets.solids import circle, frusta, rectangle

SIGNATURE = "# written to begin with: fleet-tools new-task"
"""Beginning of the files of its models, which no generator replaces."""

BLOCK, BLOCK_HEIGHT = 0.05, 0.05
"""Half the width and the height of the button's block, m."""

BUTTON, PROTRUSION, TRAVEL = 0.02, 0.04, 0.025
"""Radius of the button, how far it stands out of its block, and how far it goes in, m."""

TASK = """\
# A presser in the hand pushes a button in. Change one thing at a time, and try it:
#   fleet-tools view --task task.yaml
# What is left out has its default: where the button stands, arm, cameras, grasp, masses, friction,
# colours. All keys are in docs/reference/yaml.md, the steps in docs/tutorials/own_task.md.

name: {name}
description: A presser in the hand pushes a button at least 20 mm into its block.
tool_family: {tool_family:<19} # tools/{tool_family}/: one folder for each tool
object_family: {object_family:<17} # objects/{object_family}/
assets: .                        # where these folders are, as seen from this file
object_mount: fixed              # to the table; `free` is not
keypoints:                       # of keypoints.yaml, that all tools and objects of the task have
  tool: [foot, back, tail]
  object: [cap, base]
tool_parts:                      # what of the tool must do it: near a line through keypoints
  foot: {{keypoints: [foot], within_m: 0.025}}
time_limit_s: 10

randomization:                   # beside the defaults
  joint_resistance:              # N, of the brake in model.sdf; N m of a joint that turns
    press: {{uniform: [10, 30]}}

success:                         # all of these at once
  - {{type: joint_displacement, joint: press, at_least: 0.020}}
  - type: caused_by_part         # by the foot: not by the hand, nor by another part
    part: foot
    change: {{type: joint_displacement, joint: press, at_least: 0.018}}
  - {{type: keypoints_near, tool: foot, object: cap, within_m: 0.020}}

expert:                          # a plan around the pose in which the tool begins to act
  before:                        # on the way there, seen from that pose
    - {{motion: {{type: translate, by_m: [0, 0, 0.08], frame: object}}}}
  actuation:                     # the foot on the cap, the presser upright
    constraints:
      - {{type: point_to_point, tool: foot, object: cap}}
      - {{type: axis_to_axis, tool: [back, foot], object: [cap, base]}}
  after:                         # from there on
    - motion: {{type: translate, by_m: [0, 0, -0.04], frame: object}}
      speed: 0.3
      expect: [{{type: joint_displacement, joint: press, at_least: 0.005}}]  # else try again
    - {{motion: {{type: stay, for_s: 1.0}}}}
"""


def scaffold(name: str, tool_family: str, object_family: str) -> dict[str, bytes]:
    """Returns the content of each file of a new task's folder by its relative path."""
    task = TASK.format(name=name, tool_family=tool_family, object_family=object_family)
    files = {}
    for model in (presser(tool_family), button(object_family)):
        folder = f"{model.kind}s/{model.family}/{model.name}"
        files |= {f"{folder}/{path}": content for path, content in model_files(model).items()}
    return {**files, "task.yaml": task.encode()}


def presser(family: str) -> ModelDescription:
    """Returns a handle of beech, across the end of which a round steel post presses downwards."""
    handle = along_x(*frusta([(-0.1, circle(GRIP)), (0.165, circle(GRIP))], 2))
    post = frusta([(0.0, circle(0.012)), (0.045, circle(0.012))], 2, (0.15, 0.0))
    foot = frusta([(0.045, circle(0.018)), (0.06, circle(0.018))], 2, (0.15, 0.0))
    parts = (
        PartDescription("handle", handle, BEECH, (handle,)),
        PartDescription("post", post[0], STEEL, post),
        PartDescription("foot", foot[0], STEEL, foot),
    )
    points = {"foot": (0.15, 0.0, 0.06), "back": (0.15, 0.0, -GRIP), "tail": (-0.1, 0.0, 0.0)}
    return ModelDescription(
        kind="tool",
        family=family,
        name="first",
        links=(LinkDescription("presser", parts),),
        keypoints={name: KeypointDescription("presser", p) for name, p in points.items()},
        signature=SIGNATURE,
    )


def button(family: str) -> ModelDescription:
    """Returns a button that slides into a block of pine, against a brake."""
    (block,) = frusta([(0.0, rectangle(BLOCK, BLOCK)), (BLOCK_HEIGHT, rectangle(BLOCK, BLOCK))], 1)
    (cap,) = frusta([(-0.01, circle(BUTTON)), (PROTRUSION, circle(BUTTON))], 2)
    fixed = LinkDescription("block", (PartDescription("block", block, PINE, (block,)),))
    part = PartDescription("button", cap, NYLON, (cap,))
    moving = LinkDescription("button", (part,), origin=(0.0, 0.0, BLOCK_HEIGHT))
    press = JointDescription(
        name="press",
        kind="prismatic",
        parent="block",
        child="button",
        axis=(0.0, 0.0, -1.0),
        limits=(0.0, TRAVEL),
        resistance=20.0,
        inertia=0.1,
    )
    points = {"cap": (moving, (0.0, 0.0, PROTRUSION)), "base": (fixed, (0.0, 0.0, BLOCK_HEIGHT))}
    return jointed_model(family, "first", (fixed, moving), press, points, SIGNATURE)

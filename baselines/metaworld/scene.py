"""The start of an episode of Meta-World."""

from typing import Literal

from fleet_tools.config.values import Number, Seed, Value


class MetaWorldScene(Value):
    """The start of one episode, which its seed determines.

    Attributes:
        arena: Name of the arena, see `envs.spec`.
        task: Name of the task.
        seed: Seed that drew it.
        random_vector: What was drawn: positions of objects and of the goal, m, and angles, rad.
    """

    arena: Literal["MetaWorld"] = "MetaWorld"
    task: str
    seed: Seed
    random_vector: tuple[Number, ...]

    @property
    def tool(self) -> None:
        """None: the robot's gripper is the tool."""

    @property
    def object(self) -> None:
        """None: a task has one kind of objects."""

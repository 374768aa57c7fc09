"""An independent account of who touched the object while it moved.

It shares nothing with `fleet_tools.sim.part_motion`: it asks which shapes touch, and not how much
work their forces do.
"""

from collections import defaultdict

import numpy as np
from pydrake.systems.framework import Context, EventStatus

from fleet_tools.config.predicates import (
    CausedByPart,
    JointDisplacement,
    KeypointRaised,
    KeypointsParted,
    Predicate,
)
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.sim.contacts import find_contacts

PART, ELSEWHERE, ROBOT = "part", "tool elsewhere", "robot"


class Witness:
    """Watches every simulation step of an episode that has just begun.

    Args:
        env: The environment, right after `reset`.

    Attributes:
        change: Change of the quantity that the task's predicate `caused_by_part` is about, by who
            touched the object then or last: a set of `PART`, `ELSEWHERE` and `ROBOT`.
    """

    def __init__(self, env: ToolUseEnv) -> None:
        assert env._simulation is not None  # an episode has begun
        self._simulation = env._simulation
        caused = caused_by_part(env.task)
        self._predicate, self._part = caused.change, env.task.tool_parts[caused.part]
        self.change: dict[frozenset[str], float] = defaultdict(float)
        self._touching: frozenset[str] = frozenset()
        self._value = self._measure()
        self._simulation._simulator.set_monitor(self._watch)

    def stop(self) -> None:
        """Ends the watch."""
        self._simulation._simulator.clear_monitor()

    def saw_the_part_do_it(self) -> bool:
        """Whether nine tenths of what the task asks of the part were done while it alone touched.

        The tenth is for moments at which something else touched, too.
        """
        return self.change[frozenset({PART})] >= 0.9 * _threshold(self._predicate)

    def _watch(self, root: Context) -> EventStatus:
        value = self._measure()
        self.change[self._touching] += value - self._value
        self._value = value
        self._touching = self._who_touches() or self._touching
        return EventStatus.DidNothing()

    def _who_touches(self) -> frozenset[str]:
        world = self._simulation.world
        found: set[str] = set()
        for pair in find_contacts(world.plant, world.scene_graph, self._simulation._context):
            instances = pair.A.model_instance(), pair.B.model_instance()
            if world.object in instances and world.arm in instances:
                found.add(ROBOT)
            elif world.object in instances and world.tool in instances:
                found.add(PART if self._is_on_part(pair.p_WC) else ELSEWHERE)
        return frozenset(found)

    def _is_on_part(self, p_WC: np.ndarray) -> bool:
        """Whether a contact lies on the part, from points along its line."""
        points = self._simulation._locate(self._simulation._tool_points)
        corners = np.array([points[name] for name in self._part.keypoints])
        along = np.linspace(0.0, 1.0, 200)[:, None]
        line = corners[0] + along * (corners[-1] - corners[0])  # one keypoint, or two
        near = np.linalg.norm(line - p_WC, axis=1).min() <= self._part.within_m
        if self._part.facing is None:
            return bool(near)
        start, end = (points[name] for name in self._part.facing.axis)
        forwards = (end - start) / np.linalg.norm(end - start)
        return bool(near and forwards @ (p_WC - end) >= -self._part.facing.depth_m)

    def _measure(self) -> float:
        simulation = self._simulation
        points = simulation._locate(simulation._object_points)
        match self._predicate:
            case JointDisplacement(joint=name):
                (joint,) = (j for j in simulation._object_joints if j.name() == name)
                return float(joint.GetOnePosition(simulation._context))
            case KeypointRaised(object=name):
                return float(points[name][2])
            case KeypointsParted(objects=(one, other)):
                return float(np.linalg.norm(points[one] - points[other]))
        raise TypeError(f"no measure for {type(self._predicate).__name__}")


def caused_by_part(task: TaskConfig) -> CausedByPart:
    """Returns a task's predicate of that type, of which it has one."""
    (caused,) = (p for p in task.success if isinstance(p, CausedByPart))
    return caused


def _threshold(predicate: Predicate) -> float:
    match predicate:
        case JointDisplacement(at_least=threshold):
            return threshold
        case KeypointRaised(at_least_m=threshold) | KeypointsParted(at_least_m=threshold):
            return threshold
    raise TypeError(f"no threshold of {type(predicate).__name__}")

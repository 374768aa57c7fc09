"""An independent account of the bodies that moved the object.

It shares nothing with `fleet_tools.sim.part_motion`. It uses contacts of the tool's collision
shapes,
by their names in the package's models, and not the work of their forces. It does not add up shares,
either: it goes back from the end, and finds the last body that passed each place.
"""

import itertools
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from pydrake.systems.framework import Context, EventStatus

from fleet_tools.assets.families import find_family
from fleet_tools.config.predicates import (
    CausedByPart,
    JointDisplacement,
    KeypointRaised,
    KeypointsParted,
    Predicate,
)
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.sim.contacts import contacts

PART, ELSEWHERE, ROBOT, SOMEBODY = "part", "tool elsewhere", "robot", "somebody"

LEAST_FRACTION = 0.25
"""Bodies with less than this fraction of the largest force are ignored, such as a spatula's neck
beside the slab on the blade."""


class Witness:
    """Watches every simulation step of an episode that has just begun.

    Args:
        env: The environment, right after `reset`.
    """

    def __init__(self, env: ToolUseEnv) -> None:
        assert env.simulation is not None  # an episode has begun
        self._simulation = env.simulation
        caused = caused_by_part(env.task)
        self._predicate, self._part = caused.change, env.task.tool_parts[caused.part]
        self._working_shapes = find_family(env.task.tool_family).working_parts
        plant = self._simulation.world.plant  # bodies on a fixed link move nothing
        self._fixed = {body.index() for body in plant.GetBodiesWeldedTo(plant.world_body())}
        self._fulcrum = None
        if self._part.bears_on is not None:
            object = self._simulation.world.object
            self._fulcrum = plant.GetBodyByName(self._part.bears_on, object).index()
        self._value = self._measure()
        self._path = [(frozenset[str](), self._value)]
        self._simulation._simulator.set_monitor(self._watch)

    def stop(self) -> None:
        """Ends the watch."""
        self._simulation._simulator.clear_monitor()

    @property
    def change(self) -> dict[frozenset[str], float]:
        """The remaining change of the quantity of `caused_by_part`.

        It is divided by the bodies that touched the object, see `who_did_what_remains`.
        """
        return who_did_what_remains(self._path, self._value)

    def saw_the_part_do_it(self) -> bool:
        """Whether nine tenths of the part's required change remain from its sole contacts.

        The tenth is for moments with other contacts, too.
        """
        return self.change.get(frozenset({PART}), 0.0) >= 0.9 * _threshold(self._predicate)

    def _watch(self, root: Context) -> EventStatus:
        self._value = self._measure()
        self._path.append((self._who_touches() or self._path[-1][0], self._value))
        return EventStatus.DidNothing()

    def _who_touches(self) -> frozenset[str]:
        world = self._simulation.world
        inspector = world.scene_graph.model_inspector()
        results = world.plant.get_contact_results_output_port().Eval(self._simulation._context)
        newtons, on_fulcrum = dict.fromkeys((PART, ELSEWHERE, ROBOT), 0.0), 0.0
        for *shapes, contact in contacts(results):
            bodies = [world.plant.GetBodyFromFrameId(inspector.GetFrameId(s)) for s in shapes]
            touched = {body.index(): body.model_instance() for body in bodies if body is not None}
            if self._fulcrum in touched and world.tool in touched.values():
                on_fulcrum += float(np.linalg.norm(contact()[1].translational()))
            shape_of = {
                body.model_instance(): shape
                for body, shape in zip(bodies, shapes, strict=True)
                if body is not None and body.index() not in self._fixed
            }
            if world.object not in shape_of or not shape_of.keys() & {world.arm, world.tool}:
                continue
            p_WC, F_AC_W = contact()
            who = ROBOT
            if world.tool in shape_of:
                name = inspector.GetName(shape_of[world.tool]).split("::")[-1]
                works = name.startswith(self._working_shapes) and self._is_in_front(p_WC)
                works = works and self._is_in_place(p_WC) and self._is_pushed_from(p_WC)
                who = PART if works else ELSEWHERE
            newtons[who] += float(np.linalg.norm(F_AC_W.translational()))
        if self._fulcrum is not None and on_fulcrum < LEAST_FRACTION * newtons[PART]:
            newtons[ELSEWHERE], newtons[PART] = newtons[ELSEWHERE] + newtons[PART], 0.0
        least = LEAST_FRACTION * max(newtons.values())
        found = {who for who, force in newtons.items() if force > least}
        return frozenset(found | {SOMEBODY}) if self._is_pushed() else frozenset(found)

    def _is_pushed(self) -> bool:
        """Whether a push or a force of the scene acts on the object about now.

        A push is between two control steps, and both count.
        """
        simulation = self._simulation
        push, step = simulation.scene.push, simulation._step
        pushed = push is not None and simulation._step_of(push) in (step, step + 1)
        return pushed or any(simulation._forces.object_N_kg)

    def _is_in_front(self, p_WC: np.ndarray) -> bool:
        """Whether a contact lies on the side that the part faces; a hammer's head has one shape."""
        side = self._part.facing
        if side is None:
            return True
        points = self._simulation._locate(self._simulation._tool_points)
        start, end = (points[name] for name in side.axis)
        forwards = (end - start) / np.linalg.norm(end - start)
        return bool(forwards @ (p_WC - points[side.point]) >= -side.depth_m)

    def _is_in_place(self, p_WC: np.ndarray) -> bool:
        """Whether a contact lies at the part's required place; by samples of the place's line."""
        place = self._part.at
        if place is None:
            return True
        points = self._simulation._locate(self._simulation._object.points)
        corners = [points[name] for name in place.keypoints]
        line = [
            start + t * (end - start)
            for start, end in itertools.pairwise([corners[0], *corners])
            for t in np.linspace(0.0, 1.0, 200)
        ]
        return min(float(np.linalg.norm(p_WC - p)) for p in line) <= place.within_m

    def _is_pushed_from(self, p_WC: np.ndarray) -> bool:
        """Whether a contact lies on the side of the object where the part has to push."""
        points = self._simulation._locate(self._simulation._object.points)
        sides = [(points[start], points[end]) for start, end in self._part.pushes or ()]
        return not sides or any(
            abs((p_WC - start) @ (end - start)) <= 0.2 * np.sum((end - start) ** 2)
            for start, end in sides
        )

    def _measure(self) -> float:
        simulation = self._simulation
        points = simulation._locate(simulation._object.points)
        match self._predicate:
            case JointDisplacement(joint=name):
                (joint,) = (j for j in simulation._object.joints if j.name() == name)
                return float(joint.GetOnePosition(simulation._context))
            case KeypointRaised(object=name):
                return float(points[name][2])
            case KeypointsParted(objects=(one, other)):
                return float(np.linalg.norm(points[one] - points[other]))
        raise TypeError(f"no measure for {type(self._predicate).__name__}")


def who_did_what_remains(
    path: Sequence[tuple[frozenset[str], float]], end: float
) -> dict[frozenset[str], float]:
    """Divides the net increase of a quantity by the last body that passed each of its values.

    Args:
        path: Present or last touching bodies, and the quantity, step by step from the start.
        end: The quantity at the end.
    """
    change: dict[frozenset[str], float] = defaultdict(float)
    (_, start), lowest = path[0], end
    for who, value in reversed(path):  # later values are above `lowest`
        if max(value, start) < lowest:
            change[who] += lowest - max(value, start)
            lowest = max(value, start)
    return change


def caused_by_part(task: TaskConfig) -> CausedByPart:
    """Returns a task's only predicate of that type."""
    (caused,) = (p for p in task.success if isinstance(p, CausedByPart))
    return caused


def _threshold(predicate: Predicate) -> float:
    match predicate:
        case JointDisplacement(at_least=threshold):
            return threshold
        case KeypointRaised(at_least_m=threshold) | KeypointsParted(at_least_m=threshold):
            return threshold
    raise TypeError(f"no threshold of {type(predicate).__name__}")

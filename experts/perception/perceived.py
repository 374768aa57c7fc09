"""The experts that know what their observations show: point clouds, and the arm's own senses.

Beside the task file, `perceived_expert` is told which tool and object there are, so that it knows
their models (a known instance). `perceived_expert_category` knows the models of training scenes,
of whose families tool and object are. Where they are, and of what size, both find by registration.
Joints of the object begin where the model file says. What they do not see, contacts above all, they
do not judge: if the plan is over and the episode goes on, there was no success.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

import gymnasium
import numpy as np
from pydrake.math import RigidTransform, RotationMatrix

from fleet_tools.config.predicates import (
    AxisUpright,
    KeypointOverPlace,
    KeypointRaised,
    KeypointsNear,
    KeypointsParted,
    Predicate,
)
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
from fleet_tools.envs.wrappers import require_entries
from fleet_tools.errors import ConfigError, PolicyError
from fleet_tools.experts.assessment import unmet_predicates
from fleet_tools.experts.perception.finding import Candidates, Finder
from fleet_tools.experts.perception.freedom import Estimate, Search, by_motion, find
from fleet_tools.experts.perception.registration import COARSE, FINE, MIN_POINTS, TRACK, Schedule
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.perception.point_cloud import OBJECT_MASK, PLACE_MASK, TOOL_MASK
from fleet_tools.sim.world_state import WorldState

JOINT_STARTS = 5
"""Number of positions from which a joint is looked for."""
JOINT_RANGE = np.pi / 2
"""Largest motion of a joint that is looked for, m or rad."""
APART_M = 5e-4
APART_GROWTH = 1.5
"""Residual, m beyond so many times the beginning's, from which pieces have moved apart."""


@dataclass(frozen=True, eq=False)
class Follower:
    """Data for following an object through an episode.

    Attributes:
        first: The object where the episode began.
        residual_m: Distance from its surface that 95% of the cloud's points kept there, m.
        fixed: Whether it is fixed to the world, so that it only moves on the table.
    """

    first: Estimate
    residual_m: float
    fixed: bool

    @classmethod
    def beginning(cls, first: Estimate, cloud_W: np.ndarray, fixed: bool) -> "Follower":
        """Begins to follow an object that was found in a cloud."""
        freedom = by_motion(first.state, apart=False, on_table=True)
        stays = freedom.follow(cloud_W, np.zeros(len(freedom.low)), Schedule(TRACK.points, ()))
        return cls(first, stays.residual_m, fixed)

    def follow(self, cloud_W: np.ndarray, last: Estimate, acted_on: bool) -> Estimate:
        """Finds the object near where it was.

        Args:
            cloud_W: (n, 3), points of its surface in W, m.
            last: Where it was.
            acted_on: Whether the tool has acted on it. If not, it moves as a whole on the table,
                unless the cloud shows otherwise.
        """
        if len(cloud_W) < MIN_POINTS:
            return last
        if acted_on:
            return self._follow(cloud_W, last, apart=True)
        as_one = self._follow(cloud_W, last, apart=False)
        if as_one.residual_m <= APART_GROWTH * self.residual_m + APART_M:
            return as_one
        in_pieces = self._follow(cloud_W, as_one, apart=True)
        return min(as_one, in_pieces, key=attrgetter("residual_m"))

    def find_again(self, cloud_W: np.ndarray, last: Estimate) -> Estimate:
        """Finds the object after the tool has acted on it: where it was last, or at first.

        Args:
            cloud_W: (n, 3), points of its surface in W, m.
            last: Where it was.
        """
        if len(cloud_W) < MIN_POINTS:
            return last
        found = [self._find_near(cloud_W, near) for near in (last, self.first)]
        return min(found, key=attrgetter("residual_m"))

    def _follow(self, cloud_W: np.ndarray, last: Estimate, apart: bool) -> Estimate:
        freedom = by_motion(last.state, apart=apart, on_table=self.fixed or not apart)
        return freedom.follow(cloud_W, np.zeros(len(freedom.low)), TRACK)

    def _find_near(self, cloud_W: np.ndarray, candidate: Estimate) -> Estimate:
        freedom = by_motion(candidate.state, apart=True, on_table=self.fixed)
        size, joints = len(freedom.low), len(candidate.state.joints)
        starts = [np.zeros(size)]
        for offset in np.linspace(-JOINT_RANGE, JOINT_RANGE, JOINT_STARTS) if joints else ():
            starts.append(np.zeros(size))
            starts[-1][-joints:] = offset
        return find(cloud_W, [Search(freedom, starts, np.zeros((0, size)))], COARSE, FINE)


ANOTHER_M = 0.1
"""Distance of the object from where it was a step before from which it is another one, m."""
TOUCH_N = 1.0
"""Force on the end effector from which the tool touches something, N."""

_ENTRIES = (
    "joint_position",
    "joint_velocity",
    "joint_external_torque",
    "end_effector_pose",
    "end_effector_wrench",
    "point_cloud",
)
"""Entries of an observation that it reads."""

SIZED_ERROR_DEG = 2.0
"""Error of the directions between keypoints of models that are scaled, degrees."""

JUDGED = (
    *(KeypointsNear, KeypointsParted, KeypointRaised, KeypointOverPlace),
    AxisUpright,
)
"""Predicates that follow from keypoints."""


def perceived_expert(env: gymnasium.Env) -> ExpertPolicy:
    """Makes an expert that knows the names of tool and object, and perceives all else.

    Args:
        env: An environment with point clouds; its state is not read.

    Raises:
        ConfigError: It is another environment, or has no point clouds.
    """
    inner = _with_clouds(env)
    return ExpertPolicy(env, source=PerceivedState(inner.task, partial(_told, inner)))


def _told(env: ToolUseEnv) -> Candidates:
    present = env.scene.objects[env.objects_done()]
    return Candidates((env.scene.tool,), (present.object,), known=True)


def perceived_expert_category(env: gymnasium.Env) -> ExpertPolicy:
    """Makes an expert that knows the models of training scenes, and perceives all else.

    Args:
        env: An environment with point clouds; neither its state nor its scene is read.

    Raises:
        ConfigError: It is another environment, or has no point clouds.
    """
    task = _with_clouds(env).task
    candidates = Candidates.of_training(task)
    source = PerceivedState(task, partial(_same, candidates), SIZED_ERROR_DEG)
    return ExpertPolicy(env, source=source)


def _same(candidates: Candidates) -> Candidates:
    return candidates


def _with_clouds(env: gymnasium.Env) -> ToolUseEnv:
    inner = unwrap(env)
    require_entries(env, _ENTRIES)
    if "point_cloud" not in inner.features:
        raise ConfigError(
            'This expert needs point clouds: make the environment with obs_mode="point_cloud".'
        )
    return inner


class PerceivedState:
    """The state of the world as far as observations show it; the rest is NaN or empty.

    Args:
        task: The task.
        candidates: Returns what tool and object can be, when an episode begins.
        angle_error_deg: See `fleet_tools.experts.assessment.PrivilegedState`.
    """

    def __init__(
        self,
        task: TaskConfig,
        candidates: Callable[[], Candidates],
        angle_error_deg: float = 0.0,
    ) -> None:
        self._task, self._candidates = task, candidates
        self.angle_error_deg = angle_error_deg
        self._memory: _Memory | None = None
        self._latest: WorldState | None = None
        self.objects_done = 0

    def begin(self) -> None:
        """Begins an episode."""
        self._memory = self._latest = None
        self.objects_done = 0

    def look(self, observation: dict[str, Any]) -> WorldState:
        """Returns the present state; the tool is looked for in the first observation only.

        Raises:
            PolicyError: Tool or object is out of view when an episode begins.
        """
        seen = _Seen.of(observation)
        memory = self._memory
        if memory is None:
            memory = self._first(seen)
        elif memory.seen.shows_another(seen):
            self.objects_done += 1
            memory = self._begin_object(seen, memory.tool)
        else:
            acted_on = memory.acted_on or seen.touches
            followed = memory.follower.follow(seen.object_W, memory.object, acted_on)
            memory = replace(memory, seen=seen, acted_on=acted_on, object=followed)
        return self._remember(memory)

    def look_again(self) -> WorldState:
        """Looks for the object where it was last, and where it was at first."""
        memory = self._memory
        assert memory is not None  # it has looked before
        found = memory.follower.find_again(memory.seen.object_W, memory.object)
        return self._remember(replace(memory, object=found))

    def latest(self) -> WorldState | None:
        """Returns the state that was seen last."""
        return self._latest

    def unmet(
        self, predicates: Sequence[Predicate], initial: WorldState, present: WorldState
    ) -> tuple[str, ...]:
        """Returns descriptions of the predicates of keypoints that do not hold."""
        judged = [each for each in predicates if isinstance(each, JUDGED)]
        return unmet_predicates(judged, initial, present)

    def _first(self, seen: "_Seen") -> "_Memory":
        for name, points in (("tool", seen.tool_E), ("object", seen.object_W)):
            if len(points) < MIN_POINTS:
                raise PolicyError(
                    f"the {name} is out of view: the cameras see {len(points)} points of it"
                )
        finder = Finder(self._task, self._candidates())
        return self._begin_object(seen, finder.find_tool(seen.tool_E, seen.X_WE), finder)

    def _begin_object(
        self, seen: "_Seen", tool: Estimate, finder: Finder | None = None
    ) -> "_Memory":
        finder = finder or Finder(self._task, self._candidates())
        object = finder.find_object(seen.object_W, seen.X_WE)
        fixed = self._task.object_mount == "fixed"
        follower = Follower.beginning(object, seen.object_W, fixed)
        return _Memory(follower, tool, object, seen)

    def _remember(self, memory: "_Memory") -> WorldState:
        self._memory, self._latest = memory, memory.state()
        return self._latest


@dataclass(frozen=True, eq=False)
class _Seen:
    """What an observation shows.

    Attributes:
        q, v, tau_external: The arm's own senses, (n,) each.
        X_WE: Pose of the end effector.
        F_E: (6,), moment and force on it.
        tool_E: (n, 3), points of the tool in E, m.
        object_W: (m, 3), points of the object in W, m.
        p_W_place: (3,), the marked place in W, m; None if there is none.
    """

    q: np.ndarray
    v: np.ndarray
    tau_external: np.ndarray
    X_WE: RigidTransform
    F_E: np.ndarray
    tool_E: np.ndarray
    object_W: np.ndarray
    p_W_place: np.ndarray | None

    @classmethod
    def of(cls, observation: dict[str, Any]) -> "_Seen":
        senses = {name: np.asarray(value, dtype=float) for name, value in observation.items()}
        X, cloud = senses["end_effector_pose"], senses["point_cloud"]
        R_WE = RotationMatrix.ProjectToRotationMatrix(X[:, :3])
        X_WE = RigidTransform(R_WE, X[:, 3])
        tool_E, object_E, place_E = (  # rows may repeat
            np.unique(cloud[cloud[:, 3] == mask, :3], axis=0)
            for mask in (TOOL_MASK, OBJECT_MASK, PLACE_MASK)
        )
        return cls(
            q=senses["joint_position"],
            v=senses["joint_velocity"],
            tau_external=senses["joint_external_torque"],
            X_WE=X_WE,
            F_E=senses["end_effector_wrench"],
            tool_E=tool_E,
            object_W=X_WE.multiply(object_E.T).T,
            p_W_place=X_WE @ place_E[0] if len(place_E) else None,
        )

    def shows_another(self, later: "_Seen") -> bool:
        """Returns whether a later observation, of the next step, is of another object."""
        if min(len(self.object_W), len(later.object_W)) < MIN_POINTS:
            return False
        way = np.median(later.object_W, axis=0) - np.median(self.object_W, axis=0)
        return float(np.linalg.norm(way[:2])) > ANOTHER_M

    @property
    def touches(self) -> bool:
        """Whether something touches tool, hand or arm."""
        return float(np.linalg.norm(self.F_E[3:])) > TOUCH_N


@dataclass(frozen=True, eq=False)
class _Memory:
    """What is known of an episode.

    Attributes:
        follower: What it follows the object by.
        tool: The tool in E, where it stays.
        object: The object in W.
        seen: The last observation.
        acted_on: Whether something has touched the tool, so that the object may have changed.
    """

    follower: Follower
    tool: Estimate
    object: Estimate
    seen: _Seen
    acted_on: bool = False

    def state(self) -> WorldState:
        """Returns the state of the world as far as it is known."""
        seen, X_WO = self.seen, self.object.X_PO
        return WorldState(
            time=np.nan,
            q=seen.q,
            v=seen.v,
            tau_external=seen.tau_external,
            X_WE=seen.X_WE,
            F_E=seen.F_E,
            p_W_tool={name: seen.X_WE @ p for name, p in self.tool.keypoints.items()},
            X_WO=RigidTransform(RotationMatrix.ProjectToRotationMatrix(X_WO[:3, :3]), X_WO[:3, 3]),
            p_W_object=self.object.keypoints,
            object_joints={},
            # It cannot tell what touches: it may be the object.
            contacts=frozenset({("object", "tool")} if seen.touches else ()),
            F_W_tool=np.full(6, np.nan),
            object_joint_forces={},
            object_joint_impulses={},
            V_WE=np.full(6, np.nan),
            links={},
            motion_scale=np.nan,
            limit_times={},
            p_W_place=seen.p_W_place,
        )

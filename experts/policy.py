"""The expert as a policy: it plans from keypoints, follows the plan, and replans if needed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from pydrake.math import RigidTransform

from fleet_tools.config.expert import Expert, Keyframe, OverPlace
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.envs.wrappers import require_own_actions
from fleet_tools.errors import InfeasibleError
from fleet_tools.experts.assessment import (
    Assessment,
    FailedAttempt,
    PrivilegedState,
    assess,
    explanation,
)
from fleet_tools.experts.keyframes import retreat
from fleet_tools.experts.planner import ActuationMethod, plan
from fleet_tools.experts.problem import Plan, PlanningProblem
from fleet_tools.policies.policy import EXPLANATION
from fleet_tools.robot.pose_delta import displacement
from fleet_tools.sim.world_state import WorldState

if TYPE_CHECKING:
    from fleet_tools.experts.perception.perceived import PerceivedState

    StateSource = PrivilegedState | PerceivedState

NO_SUCCESS = "success, which has not come"
"""Unmet predicate of an episode that continues although all known predicates hold."""

SYNC_STEPS, SYNC_COST = 10, 0.1
"""Largest change of the present target after another has acted, and its cost a step: as much as a
distance to the target of that many control steps."""

CARRIED_M = 0.08
"""Largest distance of its keypoint from the tool's at which an object lies on the tool, m."""


@dataclass
class _Execution:
    """A plan and its execution.

    Attributes:
        initial: World state at the episode's start, or when its object came into use.
        problem, plan: What was planned last.
        targets: Poses X_WE to visit, one per control step.
        step: Index of the present target.
        beyond: How far it is beyond it, as a fraction of the way to the next one.
        waited: Number of steps since the last target was reached.
        retreating: Whether the targets are a retreat's.
    """

    initial: WorldState
    problem: PlanningProblem
    plan: Plan
    targets: Sequence[RigidTransform]
    step: int = 0
    beyond: float = 0.0
    waited: int = 0
    retreating: bool = False

    def follow(self, targets: Sequence[RigidTransform], retreating: bool) -> None:
        """Starts with other targets."""
        self.targets, self.step, self.waited, self.retreating = targets, 0, 0, retreating
        self.beyond = 0.0

    def advance(self) -> None:
        """Goes on to the next target; the last one is held."""
        if self.ended:
            self.waited += 1
        else:
            self.step += 1

    def move(self, moves: Callable[[Sequence[RigidTransform]], np.ndarray]) -> np.ndarray:
        """Returns the action towards the present target, (6,).

        Args:
            moves: Returns the actions to poses, (poses, 6).
        """
        ahead = moves(self.targets[self.step : self.step + 2])
        if self.beyond == 0:
            return ahead[0]
        return (1 - self.beyond) * ahead[0] + self.beyond * ahead[-1]

    def synchronize(self, moves: np.ndarray) -> None:
        """Goes to where another has led: between near targets, not far from the present in time.

        Args:
            moves: (targets, 6), actions from the present pose to each target.
        """
        steps = np.arange(len(moves))
        late = np.abs(steps - self.step)
        costs = np.linalg.norm(moves, axis=1) + SYNC_COST * late
        nearest = int(np.argmin(np.where(late <= SYNC_STEPS, costs, np.inf)))
        before = max(nearest - 1, 0)
        self.step, self.beyond = nearest, _projection(moves[nearest : nearest + 2])
        if self.beyond == 0 and (beyond := _projection(moves[before : before + 2])) > 0:
            self.step, self.beyond = before, beyond

    def aim(self, state: WorldState) -> None:
        """Corrects a motion over the marked place by where the object lies on the tool now.

        An object that has fallen off is not followed: it stays behind, however far the tool goes.
        """
        expert, plan = self.problem.expert, self.plan
        steps = (*expert.before, expert.actuation, *expert.after)
        for start, end, step in zip(plan.keyframes, plan.keyframes[1:], steps[1:], strict=False):
            if not isinstance(step, Keyframe) or not isinstance(step.motion, OverPlace):
                continue
            tool, object = step.motion.tool, step.motion.object
            p_W = state.p_W_tool[tool] - state.p_W_object[object]
            if self.step >= start and np.linalg.norm(p_W) <= CARRIED_M:
                shares = np.clip((np.arange(len(plan.X_WE)) - start) / (end - start), 0.0, 1.0)
                self.targets = [
                    RigidTransform(share * p_W * [1.0, 1.0, 0.0]) @ X_WE
                    for share, X_WE in zip(shares, plan.X_WE, strict=True)
                ]

    @property
    def ended(self) -> bool:
        """Whether the present target is the last one."""
        return self.step == len(self.targets) - 1


class ExpertPolicy:
    """Plans at the start, then moves from the tool's present pose towards the plan's next pose.

    With feedback, it replans when the object has moved since planning, and after an attempt that
    failed, for which it retreats first. So it does when another object has come into use.

    It reads the environment's privileged state, unless it is given another source, and acts through
    `step` like any other policy.

    Args:
        env: An environment of this package, wrapped or not; see `fleet_tools.envs.wrappers`.
        actuation: "joint_space" or "pose_space", see `fleet_tools.experts.planner.plan`.
        feedback: Whether it observes the state after planning.
        source: What it knows of the state; the privileged state if None.
        expert: What it does instead of what the task file says.

    Raises:
        ConfigError: It is an environment of another package, or in a wrapper through which no
            policy can act.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        actuation: ActuationMethod = "joint_space",
        feedback: bool = True,
        source: "StateSource | None" = None,
        expert: Expert | None = None,
    ) -> None:
        inner = unwrap(env)
        self._task, self._robot = inner.task, inner.robot
        if expert is not None:
            self._task = self._task.model_copy(update={"expert": expert})
        self._action_scale = inner.action_scale
        require_own_actions(env)
        self._source: StateSource = PrivilegedState(inner) if source is None else source
        self._actuation: ActuationMethod = actuation
        self._feedback = feedback
        self._execution: _Execution | None = None
        self._began = False
        self._gave_up = False
        self._another_acted = False
        self._objects_done = 0
        self._planning_seconds: list[float] = []  # of each plan
        self._failures: list[FailedAttempt] = []  # of each attempt after which it retreated
        self._planning_errors: list[str] = []

    def reset(self) -> None:
        """Begins an episode, and plans if the state is known without an observation.

        Raises:
            InfeasibleError: There is no plan.
        """
        self._execution, self._gave_up, self._another_acted = None, False, False
        self._objects_done = 0
        self._planning_seconds, self._failures, self._planning_errors = [], [], []
        self._began = True
        initial = self._source.begin()
        if initial is not None:
            self._begin(initial)

    @property
    def plan(self) -> Plan | None:
        """The present plan; None before `reset`."""
        return None if self._execution is None else self._execution.plan

    @property
    def info(self) -> dict[str, Any]:
        """Events of this episode, as JSON data.

        `planning_seconds` (sum over all plans), `plans` and `retreats` (numbers). `stage` is the
        keyframe to which it is on its way, such as "after[1]", or "retreat" or "planning".
        `failed_attempts` have each the `keyframe` at which it failed and the `unmet` predicates
        there. There are also `planning_errors`, for which it found no plan; `unmet`, the success
        predicates that do not hold now; and `explanation`, the same in words, unless all went well.
        """
        unmet = self._unmet_now()
        words = explanation(self._failures, self._planning_errors, self._stage, unmet)
        return {
            "planning_seconds": sum(self._planning_seconds),
            "plans": len(self._planning_seconds),
            "retreats": len(self._failures),
            "stage": self._stage,
            "failed_attempts": [
                {"keyframe": each.keyframe, "unmet": list(each.unmet)} for each in self._failures
            ],
            "planning_errors": list(self._planning_errors),
            "unmet": list(unmet),
            **({EXPLANATION: words} if words else {}),
        }

    def _unmet_now(self) -> tuple[str, ...]:
        present = self._source.latest()
        if present is None:
            return ()
        initial = present if self._execution is None else self._execution.initial
        return self._source.unmet(self._task.success, initial, present)

    @property
    def _stage(self) -> str:
        execution = self._execution
        if execution is None:
            return "planning"
        return "retreat" if execution.retreating else execution.plan.leg(execution.step)

    def yield_step(self) -> None:
        """Says that another acts in its place now.

        It then goes on with its plan from where the other has led, instead of from where the plan
        would be by now. In contact, where poses do not say how hard it pushes, it does not.
        """
        self._another_acted = True

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the action towards the next pose, for `env.step`; the last pose is held.

        Raises:
            RuntimeError: `reset` has not been called.
            InfeasibleError: There is no plan from the first observation.
        """
        if not self._began:
            raise RuntimeError("act() was called before reset(); call reset() first")
        state = self._source.look(observation)
        execution = self._execution or self._begin(state)
        if self._another_acted and not state.in_contact("tool", "object"):
            execution.synchronize(self._moves(state.X_WE, execution.targets))
        self._another_acted = False
        if self._feedback and self._source.objects_done != self._objects_done:
            self._objects_done, self._gave_up = self._source.objects_done, False
            execution.initial = state
            execution.follow([state.X_WE, *retreat(execution.problem, state.X_WE)], retreating=True)
        if self._feedback and not self._gave_up:
            try:
                self._react(execution, state)
            except InfeasibleError:
                self._gave_up = True  # on feedback; it continues as before
        execution.advance()
        action = execution.move(partial(self._moves, state.X_WE))
        return np.clip(action, -1.0, 1.0).astype(np.float32)

    def _moves(self, X_WE: RigidTransform, targets: Sequence[RigidTransform]) -> np.ndarray:
        """Returns the actions from a pose to targets, (targets, 6), not clipped."""
        return np.array([displacement(X_WE, target) / self._action_scale for target in targets])

    def _begin(self, initial: WorldState) -> _Execution:
        problem, plan = self._plan(initial)
        self._execution = _Execution(initial, problem, plan, plan.X_WE)
        return self._execution

    def _react(self, execution: _Execution, state: WorldState) -> None:
        """Replans or retreats if the state requires it."""
        if execution.retreating:
            if execution.ended:
                self._replan(execution, self._source.look_again())
            return
        match self._assess(execution, state):
            case Assessment.OBJECT_MOVED:
                self._replan(execution, state)
            case Assessment.ON_TRACK:
                execution.aim(state)
            case FailedAttempt() as failure:
                self._failures.append(failure)
                poses = retreat(execution.problem, state.X_WE)
                execution.follow([state.X_WE, *poses], retreating=True)

    def _assess(self, execution: _Execution, state: WorldState) -> Assessment | FailedAttempt:
        plan, step = execution.plan, execution.step
        found = assess(
            plan,
            execution.problem,
            self._task.success,
            step,
            execution.initial,
            state,
            self._source.unmet,
        )
        if found is Assessment.ON_TRACK and execution.waited > self._task.success_steps:
            return FailedAttempt(
                plan.leg(step), (NO_SUCCESS,)
            )  # the source cannot tell what is amiss
        return found

    def _replan(self, execution: _Execution, state: WorldState) -> None:
        execution.problem, execution.plan = self._plan(state)
        execution.follow(execution.plan.X_WE, retreating=False)

    def _plan(self, state: WorldState) -> tuple[PlanningProblem, Plan]:
        task = self._task
        problem = PlanningProblem(
            expert=task.expert,
            control_rate_hz=task.control_rate_hz,
            step_bounds=task.step_bounds,
            robot=self._robot,
            q0=state.q,
            p_E_tool={
                name: p
                for name, p in state.in_end_effector(state.p_W_tool).items()
                if name in task.keypoints.tool
            },
            p_W_object=state.p_W_object,
            X_WO=state.X_WO,
            p_W_place=state.p_W_place,
        )
        try:
            made = self._made(problem)
        except InfeasibleError as error:
            self._planning_errors.append(str(error))
            raise
        self._planning_seconds.append(sum(made.seconds.values()))
        return problem, made

    def _made(self, problem: PlanningProblem) -> Plan:
        """Returns the plan; with more tolerance for estimated axes if there is none otherwise."""
        try:
            return plan(problem, self._actuation)
        except InfeasibleError:
            slack = self._source.angle_error_deg
            if slack == 0:
                raise
            return plan(replace(problem, angle_slack_deg=slack), self._actuation)


def _projection(moves: np.ndarray) -> float:
    """Returns where the pose lies from which moves to two targets begin.

    Args:
        moves: (2, 6); or (1, 6) at the last target.

    Returns:
        The fraction of the way from the first to the second that lies nearest.
    """
    way = moves[-1] - moves[0]
    length = float(way @ way)
    return 0.0 if length == 0 else float(np.clip(-(moves[0] @ way) / length, 0.0, 1.0))

"""The expert as a policy: it plans from keypoints, follows its plan, and sees whether it worked."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from pydrake.math import RigidTransform

from fleet_tools.errors import InfeasibleError
from fleet_tools.experts.assessment import Finding, assess
from fleet_tools.experts.keyframes import retreat
from fleet_tools.experts.planner import plan
from fleet_tools.experts.problem import Plan, PlanningProblem
from fleet_tools.robot.pose_delta import displacement
from fleet_tools.sim.world_state import WorldState


class ExpertPolicy:
    """Plans at `reset`, then acts towards the plan's next pose from wherever the tool is.

    With feedback it plans again when the object is no longer where the plan takes it to be, and
    after an attempt that failed: then it retreats, looks, and begins anew.

    It reads the environment's public privileged state, and acts through the same `step` as
    everyone.

    Args:
        env: A Fleet-Tools environment, wrapped or not.
        actuation: "joint_space" or "pose_space", see `fleet_tools.experts.planner.plan`.
        feedback: Whether it looks again after planning.

    Attributes:
        plan: The present plan; None before `reset`.
    """

    def __init__(
        self, env: gymnasium.Env, actuation: str = "joint_space", feedback: bool = True
    ) -> None:
        self._env = env.unwrapped
        self._actuation = actuation
        self._feedback = feedback
        self._initial: WorldState | None = None
        self._problem: PlanningProblem | None = None
        self._targets: Sequence[RigidTransform] = ()
        self._step = 0  # towards which of the targets
        self._retreating = self._given_up = False
        self._seconds: list[float] = []  # of each plan
        self._retreats = 0
        self.plan: Plan | None = None

    def reset(self) -> None:
        """Plans from the environment's present state.

        Raises:
            InfeasibleError: There is no plan.
        """
        self.plan, self._seconds, self._retreats = None, [], 0
        self._given_up = False
        self._initial = self._env.world_state()
        self._begin(self._initial)

    @property
    def info(self) -> dict[str, float]:
        """What episodes remember about their plans."""
        return {
            "planning_seconds": sum(self._seconds),
            "plans": len(self._seconds),
            "retreats": self._retreats,
        }

    def act(self, observation: Any) -> np.ndarray:
        """Returns the action towards the next pose, (6,); the last pose is held."""
        state = self._env.world_state()
        if self._feedback and not self._given_up:
            self._look(state)
        self._step = min(self._step + 1, len(self._targets) - 1)
        action = displacement(state.X_WE, self._targets[self._step]) / self._env.action_scale
        return np.clip(action, -1.0, 1.0).astype(np.float32)

    def _look(self, state: WorldState) -> None:
        """Plans anew, or retreats, where what it sees asks for it."""
        try:
            if self._retreating:
                if self._step == len(self._targets) - 1:
                    self._begin(state)
                return
            task = self._env.task
            match assess(self.plan, self._problem, task.success, self._step, self._initial, state):
                case Finding.OBJECT_MOVED:
                    self._begin(state)
                case Finding.FAILED:
                    self._retreats += 1
                    self._follow([state.X_WE, *retreat(self._problem, state.X_WE)])
                    self._retreating = True
        except InfeasibleError:
            self._given_up = True  # and goes on with what it was doing

    def _begin(self, state: WorldState) -> None:
        task = self._env.task
        problem = PlanningProblem(
            expert=task.expert,
            action=task.action,
            q0=state.q,
            p_E_tool={
                name: p
                for name, p in state.in_end_effector(state.p_W_tool).items()
                if name in task.keypoints.tool
            },
            p_W_object=state.p_W_object,
            X_WO=state.X_WO,
        )
        self.plan = plan(problem, self._actuation)
        self._problem = problem
        self._seconds.append(sum(self.plan.seconds.values()))
        self._follow(self.plan.X_WE)
        self._retreating = False

    def _follow(self, targets: Sequence[RigidTransform]) -> None:
        self._targets, self._step = targets, 0

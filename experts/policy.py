"""The expert as a policy: it plans once from keypoints, then follows its plan."""

from typing import Any

import gymnasium
import numpy as np

from fleet_tools.experts.planner import plan
from fleet_tools.experts.problem import Plan, PlanningProblem
from fleet_tools.motions import displacement


class ExpertPolicy:
    """Plans at `reset`, and then acts towards the plan's next pose from wherever the tool is.

    It reads the environment's public privileged state, and acts through the same `step` as
    everyone.

    Args:
        env: A Fleet-Tools environment, wrapped or not.
        actuation: "joint_space" or "pose_space", see `fleet_tools.experts.planner.plan`.

    Attributes:
        plan: The present plan; None before `reset`.
    """

    def __init__(self, env: gymnasium.Env, actuation: str = "joint_space") -> None:
        self._env = env.unwrapped
        self._actuation = actuation
        self._step = 0
        self.plan: Plan | None = None

    def reset(self) -> None:
        """Plans from the environment's present state.

        Raises:
            InfeasibleError: There is no plan.
        """
        self.plan, self._step = None, 0
        task, state = self._env.task, self._env.world_state()
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

    @property
    def info(self) -> dict[str, float]:
        """What episodes remember about their plan."""
        return {"planning_seconds": sum(self.plan.seconds.values())} if self.plan else {}

    def act(self, observation: Any) -> np.ndarray:
        """Returns the action towards the plan's next pose, (6,); the last pose is held."""
        self._step = min(self._step + 1, len(self.plan.X_WE) - 1)
        X_WE = self._env.world_state().X_WE
        action = displacement(X_WE, self.plan.X_WE[self._step]) / self._env.action_scale
        return np.clip(action, -1.0, 1.0).astype(np.float32)

"""Motions of the arm from which cheats and honest ways are made."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from pydrake.math import RigidTransform, RollPitchYaw, RotationMatrix

from fleet_tools.config.expert import Expert
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import InfeasibleError
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.robot.pose_delta import displacement
from fleet_tools.sim.world_state import WorldState

Actions = Iterator[np.ndarray]
"""Actions of control steps, (6,) each, every one computed from the state before it."""

Target = Callable[[WorldState], np.ndarray]
"""Position in the world, (3,), which may follow the object."""

Condition = Callable[[WorldState], bool]

FINGERTIP = np.array([0.0, 0.023, 0.008])
"""Lower end of the left finger, in the end effector's frame E, m."""

KNUCKLE = np.array([0.0, 0.102, -0.037])
"""Lower edge of the hand on the left finger's side, in frame E, m."""

WRIST = np.array([0.0, 0.046, -0.190])
"""Side of the arm's sixth link, in frame E, m."""

REST = np.zeros(6)


def other_side(p_E: np.ndarray) -> np.ndarray:
    """Returns the mirror image of a point of the hand, (3,)."""
    return p_E * [1.0, -1.0, 1.0]


def hand(yaw_deg: float = 0.0, tilt_deg: float = 0.0, roll_deg: float = 0.0) -> RotationMatrix:
    """Returns an orientation R_WE; at zero the fingers look down and the tool away from the robot.

    Args:
        yaw_deg: Turn about the vertical.
        tilt_deg: Angle by which the tool's end points upwards.
        roll_deg: Turn about the tool's length that lowers the left finger.
    """
    yaw, tilt, roll = np.deg2rad([yaw_deg, tilt_deg, roll_deg])
    down = RotationMatrix(RollPitchYaw(0.0, 0.0, yaw)) @ RotationMatrix.MakeXRotation(np.pi)
    return down @ RotationMatrix.MakeYRotation(tilt) @ RotationMatrix.MakeXRotation(roll)


def never(_: WorldState) -> bool:
    """The condition that never holds."""
    return False


def over(name: str, up_m: float = 0.0, aside_m: float = 0.0) -> Target:
    """Returns a target above a keypoint of the object, perhaps to the left of it (along y)."""
    return lambda state: state.p_W_object[name] + [0.0, aside_m, up_m]


class DrivenArm:
    """The arm of an environment, moved by points of the hand or the tool.

    Args:
        env: The environment, with its privileged state.
    """

    def __init__(self, env: ToolUseEnv) -> None:
        self.env = env

    @property
    def state(self) -> WorldState:
        """The present state."""
        return self.env.world_state()

    def hand_over_object(self, turn_deg: float) -> RotationMatrix:
        """Returns the orientation R_WE, nearest to `hand()`, with the tool over the object.

        Seen from above, `left` and `right` of tool and object are then parallel.

        Args:
            turn_deg: Turn by which the object repeats itself, degrees.
        """

        def angle_deg(vector: np.ndarray) -> float:
            return float(np.rad2deg(np.arctan2(vector[1], vector[0])))

        state = self.state
        tool_E = self.on_tool("left") - self.on_tool("right")
        object_W = state.p_W_object["left"] - state.p_W_object["right"]
        yaw = angle_deg(object_W) - angle_deg(self.level_hand() @ tool_E)
        return self.level_hand(yaw - turn_deg * round(yaw / turn_deg))

    def level_hand(self, yaw_deg: float = 0.0, tilt_deg: float = 0.0) -> RotationMatrix:
        """Returns the orientation R_WE in which the tool is as in `hand`, however it is held."""
        R_EG = self.env.scene.tool_in_hand.to_transform().rotation()
        return hand(yaw_deg, tilt_deg) @ R_EG.inverse()

    def deed(self) -> float:
        """Progress of the object towards the task's first predicate, in [0, 1], by any means."""
        return next(iter(self.env.verdicts().values())).progress

    def done(self, fraction: float = 1.0) -> Condition:
        """Returns the condition that the deed is done to a fraction."""
        return lambda _: self.deed() >= fraction

    def on_tool(self, name: str) -> np.ndarray:
        """Returns a keypoint of the tool in frame E, (3,)."""
        state = self.state
        return state.in_end_effector(state.p_W_tool)[name]

    def on_handle(self, x: float, y: float = 0.0, z: float = 0.0) -> np.ndarray:
        """Returns a point of the tool's grasp frame in frame E, (3,); x is along the handle."""
        return self.env.scene.tool_in_hand.to_transform() @ np.array([x, y, z])

    def place(
        self,
        p_E: np.ndarray,
        target: Target,
        R_WE: RotationMatrix,
        steps: int,
        *,
        speed: float = 1.0,
        until: Condition = never,
        within_m: float = 0.005,
    ) -> Actions:
        """Moves a point of the hand to a target, and the hand to an orientation.

        Args:
            p_E: The point, fixed in frame E.
            target: Its target.
            R_WE: The orientation.
            steps: Number of steps after which it stops in any case.
            speed: Largest entry of the actions, in (0, 1].
            until: Condition upon which it stops.
            within_m: Distance from the target upon which it stops.
        """
        for _ in range(steps):
            state = self.state
            X_WD = RigidTransform(R_WE, target(state) - R_WE @ p_E)
            delta = displacement(state.X_WE, X_WD)
            turned = np.linalg.norm(delta[3:]) < 0.1
            near = np.linalg.norm(target(state) - state.X_WE @ p_E) < within_m
            if until(state) or (turned and near):
                return
            action = delta / self.env.action_scale
            yield action * min(1.0, speed / max(np.abs(action).max(), 1e-9))

    def shift(
        self, by_m: Sequence[float] | np.ndarray, steps: int = 6, speed: float = 1.0
    ) -> Actions:
        """Moves the hand by a vector of the world."""
        state = self.state
        goal = state.X_WE.translation() + by_m
        return self.place(np.zeros(3), lambda _: goal, state.X_WE.rotation(), steps, speed=speed)

    def follow_expert(self, expert: Expert | None = None, until: Condition = never) -> Actions:
        """Acts like an expert until its plan ends or a condition holds; not at all without a plan.

        Args:
            expert: The expert; the task file's if None.
            until: Condition upon which it stops.
        """
        policy = ExpertPolicy(self.env, feedback=False, expert=expert)
        try:
            policy.reset()
        except InfeasibleError:
            return
        assert policy.plan is not None
        for _ in policy.plan.X_WE[1:]:
            if until(self.state):
                return
            yield policy.act({})


Script = Callable[[DrivenArm], Actions]
"""The arm's actions in an honest way or a cheat; afterwards it rests."""


class ScriptPolicy:
    """The policy of a script.

    Args:
        env: The environment, with its privileged state.
        script: The script.

    Attributes:
        ended: Whether the script has ended.
    """

    def __init__(self, env: ToolUseEnv, script: Script) -> None:
        self._env, self._script = env, script
        self._actions: Actions = iter(())
        self.ended = False

    def reset(self) -> None:
        """Begins the script in the environment's present episode."""
        self._actions = self._script(DrivenArm(self._env))
        self.ended = False

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the next action, (6,); rest after the script's end."""
        action = next(self._actions, None)
        self.ended = action is None
        return (REST if action is None else action).astype(np.float32)

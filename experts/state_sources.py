"""Where an expert's knowledge of the world's state comes from."""

from collections.abc import Sequence
from typing import Any, Protocol

from fleet_tools.config.predicates import Predicate
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.assessment import unmet_predicates
from fleet_tools.sim.world_state import WorldState


class StateSource(Protocol):
    """What an expert knows of the world's state.

    Attributes:
        angle_error_deg: Error that directions between its keypoints may have, degrees.
    """

    angle_error_deg: float

    def begin(self) -> WorldState | None:
        """Begins an episode; returns its initial state if that is known before an observation."""
        ...

    def look(self, observation: dict[str, Any]) -> WorldState:
        """Returns the present state, as far as it is known."""
        ...

    def look_again(self) -> WorldState:
        """Returns the present state, found with more effort than by following its change."""
        ...

    def latest(self) -> WorldState | None:
        """Returns the latest state that is known."""
        ...

    def unmet(
        self, predicates: Sequence[Predicate], initial: WorldState, present: WorldState
    ) -> tuple[str, ...]:
        """Returns descriptions of the predicates that are known not to hold."""
        ...


class PrivilegedState:
    """The environment's exact state.

    Args:
        env: The environment.
    """

    angle_error_deg = 0.0

    def __init__(self, env: ToolUseEnv) -> None:
        self._env = env

    def begin(self) -> WorldState:
        """Returns the initial state."""
        return self._env.world_state()

    def look(self, observation: dict[str, Any]) -> WorldState:
        """Returns the present state."""
        return self._env.world_state()

    def look_again(self) -> WorldState:
        """Returns the present state."""
        return self._env.world_state()

    def latest(self) -> WorldState:
        """Returns the present state."""
        return self._env.world_state()

    def unmet(
        self, predicates: Sequence[Predicate], initial: WorldState, present: WorldState
    ) -> tuple[str, ...]:
        """Returns descriptions of the predicates that do not hold."""
        return unmet_predicates(predicates, initial, present)

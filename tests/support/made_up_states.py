"""States of a world that are made up, and the law of a predicate's progress."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from pydrake.math import RigidTransform

from fleet_tools.config.predicates import (
    Predicate,
)
from fleet_tools.envs.success import judge
from fleet_tools.sim.world_state import WorldState

points = st.tuples(*[st.floats(-1, 1)] * 3).map(np.array)
START = WorldState(
    time=0.0,
    q=np.zeros(7),
    v=np.zeros(7),
    tau_external=np.zeros(7),
    X_WE=RigidTransform([0.1, 0.2, 0.3]),
    F_E=np.zeros(6),
    p_W_tool={"head": np.zeros(3)},
    X_WO=RigidTransform(),
    p_W_object={"head": np.zeros(3), "base": np.array([0.0, 0.0, -0.1])},
    object_joints={"slide": 0.0, "turn": 0.0},
    contacts=frozenset({("object/block", "table")}),
    F_W_tool=np.zeros(6),
    object_joint_forces={"slide": 0.0, "turn": 0.0},
    object_joint_impulses={"slide": 0.0, "turn": 0.0},
    V_WE=np.zeros(6),
    links={"block": (np.zeros(3), np.zeros(3)), "nail": (np.zeros(3), np.zeros(3))},
    motion_scale=1.0,
    limit_times={},
)


def with_points(**p_W: np.ndarray) -> WorldState:
    return replace(START, p_W_object=START.p_W_object | p_W)


def require_law(
    predicate: Predicate, closer: WorldState, farther: WorldState, start: WorldState = START
) -> bool:
    """Asserts that progress grows towards success and is 1 there; returns whether `closer` has it.

    Args:
        predicate: The predicate.
        closer: A state at least as close to success as the next.
        farther: The other state.
        start: State at the start of the episode.
    """
    near, far = (judge(predicate, start, state) for state in (closer, farther))
    assert 0.0 <= far.progress <= near.progress <= 1.0
    for verdict in (near, far):
        assert verdict.holds is (verdict.progress == 1.0)
    assert near.holds or not far.holds
    return near.holds

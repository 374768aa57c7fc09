"""Straight-line code: it computes what Python computes, to the last bit."""

import math
import operator
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from support.arms import ARM, random_configuration

from fleet_tools.robot import arm_model, controller
from fleet_tools.robot.controller import Reference
from fleet_tools.robot.limits import JointLimits, motion_scale
from fleet_tools.robot.osc import Gains, external_wrench, operational_space_acceleration, turning
from fleet_tools.sim.attribution import advance, displacements
from fleet_tools.sim.free_rotation import Bodies, conserving_forces, conserving_velocity
from fleet_tools.utils import straight_line as straight_line_module
from fleet_tools.utils.straight_line import pack, straight_line
from fleet_tools.utils.symbols import (
    arctangent,
    cosine,
    larger,
    sine,
    smaller,
    square_root,
    where,
    zeros,
)

floats = st.floats(width=64)
seeds = st.integers(0, 2**32 - 1)


def bits(value: Any) -> list[bytes]:
    """Returns the bits of all numbers of a result; those of any NaN are the same."""
    if isinstance(value, tuple):
        return [each for part in value for each in bits(part)]
    numbers = np.array(value, dtype=float).ravel()
    return [b"nan" if math.isnan(x) else np.float64(x).tobytes() for x in numbers]


def source(function: Any) -> Any:
    """Returns a function that is not compiled."""
    return function.__wrapped__


def every_call(function: Any, arguments: tuple, earlier: tuple) -> list[list[bytes]]:
    """Returns the bits of a call, and of machine code that held earlier arguments before."""
    code = function.bind(*earlier)
    code()
    variables: list[Any] = []
    straight_line_module._forms(arguments, variables)
    code.fill(variables)
    return [bits(function(*arguments)), bits(code.code.read(code()))]


@straight_line
def everything(x: float, y: float) -> tuple[float, ...]:
    values = (
        *(operate(x, y) for operate in (operator.add, operator.sub, operator.mul)),
        *(x / y, 1 / x, 2.5 - y, -x, abs(x), x**2, larger(x, y), smaller(x, y), larger(0.0, x)),
        *(square_root(x), arctangent(x, y), arctangent(1.0, y)),
    )
    compared = (x < y, x <= y, x > y, x >= y, x == y, (x < y) | (x == 1.0), (x < y) & (y < 1.0))
    return (*values, *(where(each, x, 7.0) for each in compared))


@given(floats, floats)
def test_operations_are_those_of_ieee_754(x, y):
    with np.errstate(all="ignore"):
        expected = source(everything)(np.float64(x), np.float64(y))
    assert bits(everything(x, y)) == bits(expected)


@given(st.floats(-1e6, 1e6))
def test_sines_are_those_of_the_c_library(x):
    turned = straight_line(lambda a: (sine(a), cosine(a)))
    assert bits(turned(x)) == bits((math.sin(x), math.cos(x)))


# --- The functions of the simulation ------------------------------------------------------------


@given(seeds, st.floats(0, 3))
def test_the_control_law_has_the_bits_of_its_source(seed, speed):
    rng = np.random.default_rng(seed)
    q, _ = random_configuration(rng)
    v = speed * rng.normal(size=7)
    X_WE = ARM.plant.EvalBodyPoseInWorld(ARM.context, ARM.plant.GetBodyByName("panda_hand"))
    reference = Reference(X_WE, 0.05 * rng.normal(size=6), 0.0, 1 / 6, rng.normal(size=7))
    gains, V = Gains(40.0, 30.0, 5.0), rng.normal(size=6)
    fraction = rng.uniform()
    arguments = ARM.packed, pack(gains), np.r_[q, v], reference.packed, fraction, V
    at_rest = Reference(X_WE, np.zeros(6), 0.0, 1.0, np.zeros(7))
    earlier = ARM.packed, pack(gains), np.zeros(14), at_rest.packed, 0.0, np.zeros(6)
    motion = reference.path, reference.posture
    plain = source(controller._control_law)(
        (ARM.serial_arm, ARM.limits), (gains,), np.r_[q, v], motion, fraction, V
    )
    assert every_call(controller._control_law, arguments, earlier) == [bits(plain)] * 2


def matrix(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape)


CASES = {
    "the acceleration in operational space": lambda rng: (
        operational_space_acceleration,
        (np.eye(7) + 0.1 * np.ones((7, 7)), matrix(rng, 6, 7), matrix(rng, 6), matrix(rng, 7)),
    ),
    "the wrench of external torques": lambda rng: (
        external_wrench,
        (matrix(rng, 6, 7), matrix(rng, 7)),
    ),
    "the turns of a path": lambda rng: (turning, (matrix(rng, 3), matrix(rng, 3, 3))),
    "the scale of a motion": lambda rng: (
        motion_scale,
        (matrix(rng, 7), matrix(rng, 7), JointLimits(*np.abs(matrix(rng, 4, 7)))),
    ),
    "the scale of a reference": lambda rng: (
        controller._scale,
        ((ARM.serial_arm, ARM.limits), matrix(rng, 7), matrix(rng, 6)),
    ),
    "the wrench at joint positions": lambda rng: (
        arm_model._external_wrench,
        ((ARM.serial_arm, ARM.limits), matrix(rng, 7), matrix(rng, 7)),
    ),
    "displacements": lambda rng: (displacements, (matrix(rng, 2, 3, 4), matrix(rng, 2, 3, 4))),
    "attribution": lambda rng: (
        advance,
        (
            matrix(rng, 3, 2, 6),
            matrix(rng, 2, 6),
            (0, 1),
            matrix(rng, 2, 2),
            matrix(rng, 4),
            matrix(rng, 4),
            (0, 1, -1, 1),
            matrix(rng, 2, 4),
        ),
    ),
    "forces on free bodies": lambda rng: (
        conserving_forces,
        (
            matrix(rng, 26) * 10 ** rng.uniform(0, 3),
            np.abs(matrix(rng, 2, 13)),
            (Bodies((0, 7), (0, 6), 12, np.float64(0.004)),),
        ),
    ),
    "the velocity of a free body": lambda rng: (
        conserving_velocity,
        (tuple(np.diag(rng.uniform(1, 2, 3))), tuple(300 * matrix(rng, 3)), np.float64(0.004)),
    ),
}


@pytest.mark.parametrize("case", CASES)
@given(seed=seeds)
def test_compiled_functions_have_the_bits_of_their_source(case, seed):
    function, arguments = CASES[case](np.random.default_rng(seed))
    _, earlier = CASES[case](np.random.default_rng(seed + 1))
    try:
        with np.errstate(all="ignore"):
            expected = source(function)(*arguments)
    except ZeroDivisionError:  # Python's numbers do not divide by zero, as `where` may ask them to
        reject()
    assert every_call(function, arguments, earlier) == [bits(expected)] * 2


def test_turns_are_cross_products_with_the_axis():
    rng = np.random.default_rng(0)
    for _ in range(100):
        axis, R = rng.normal(size=3), rng.normal(size=(3, 3))
        KR = np.cross(axis, R, axisb=0, axisc=0)
        expected = KR, np.cross(axis, KR, axisb=0, axisc=0)
        assert bits(turning(axis, R)) == bits(expected)


# --- Arguments and results ----------------------------------------------------------------------


class Pair(NamedTuple):
    a: Any
    b: Any


@straight_line
def turned(pair: Pair, powers: tuple[int, ...]) -> Pair:
    product = zeros(*pair.a.shape)
    for i, power in enumerate(powers):
        product[i] = pair.a[i] * pair.b * power
    return Pair(product, (pair.b, power_sum(powers)))


def power_sum(powers: tuple[int, ...]) -> int:
    return sum(powers)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=4), st.floats(-10, 10))
def test_shapes_and_integers_are_constants(powers, b):
    a = np.arange(len(powers) * 2.0).reshape(-1, 2)
    result = turned(Pair(a, b), tuple(powers))
    assert type(result) is Pair and result.a.dtype == np.float64
    assert (result.a == a * b * np.array(powers)[:, None]).all()
    assert result.b == (b, sum(powers))
    for order in ("C", "F"):
        assert (turned(Pair(a.astype("f4", order=order), b), tuple(powers)).a == result.a).all()


def test_packed_arguments_are_tuples_whichever_comes_next():
    weighted = straight_line(lambda packed, x: packed[0] * x + packed[1][0])
    one, other = pack(np.arange(2.0), (3.0,)), pack(np.ones(2), (0.0,))
    for _ in range(2):
        for packed, values in ((one, (np.arange(2.0), (3.0,))), (other, (np.ones(2), (0.0,)))):
            assert weighted(packed, 2.0).tolist() == weighted(values, 2.0).tolist()
    assert weighted(one, 2.0).tolist() == [3.0, 5.0]


def test_results_are_nobody_elses():
    doubled = straight_line(lambda a: 2 * a)
    first = doubled(np.ones(3))
    doubled(np.zeros(3))
    assert first.tolist() == [2, 2, 2]


def test_bound_arguments_stay_and_the_next_result_replaces_the_last():
    weighted = straight_line(lambda packed, x, offset: packed[0] * x + offset)
    one, other = pack(np.arange(2.0)), pack(np.ones(2))
    code = weighted.bind(one, np.ones(2), 1.0)
    first = code()
    assert first.tolist() == [1.0, 2.0]
    code.inputs[1][:], code.inputs[2][()] = 3.0, -1.0
    assert code().tolist() == first.tolist() == [-1.0, 2.0]
    code.put(0, other)
    assert code().tolist() == [2.0, 2.0]
    # Other users of the function have memory of their own.
    assert weighted(one, np.ones(2), 1.0).tolist() == [1.0, 2.0]
    assert weighted.bind(one, np.ones(2), 1.0)().tolist() == [1.0, 2.0]
    assert code().tolist() == [2.0, 2.0]


def test_threads_may_call_at_the_same_time():
    doubled, wrong = straight_line(lambda a: 2 * a), []

    def repeat(value: float) -> None:
        for _ in range(2000):
            if (doubled(np.full(50, value)) != 2 * value).any():
                wrong.append(value)

    threads = [threading.Thread(target=repeat, args=(float(k),)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@straight_line
def branching(x: float) -> float:
    return 1.0 if x > 0 else 2.0


@straight_line
def cubing(x: float) -> float:
    return x**3


@pytest.mark.parametrize(
    ("function", "argument", "said"),
    [
        (branching, 1.0, "where"),
        (cubing, 1.0, "the exponent 3"),
        (cubing, "one", "'one'"),
        (cubing, None, "None"),
    ],
)
def test_what_has_no_straight_line_is_refused(function, argument, said):
    with pytest.raises(TypeError, match=said):
        function(argument)

"""Measures whether free bodies keep their momentum and energy: `python benchmarks/tumbling.py`.

    python benchmarks/tumbling.py --speeds 60 --drops 0 --json

Every free object of the package flies and tumbles without contact, and so do a rod and a plate of
extreme proportions, with the forces that make Drake's step conserve momentum (`fleet_tools.sim.
free_rotation`) and without them. Then objects fall onto the table as they spin.
"""

import math
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from console import print_now
from tumbling_bench import HIGH, Bench, G, benches

from fleet_tools.config.values import Count, CountOrZero, Positive
from fleet_tools.utils import cli

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    import numpy as np

_DROP_HEIGHT = 0.3
_DROP_SECONDS = 2.0

_RUNAWAY = 1e9
"""Energy relative to the start from which a flight counts as diverged."""

_FLIGHT_HEADER = (
    "| object | rad/s | energy after 1 s, uncorrected | corrected | at the end, uncorrected "
    "| corrected | at most, corrected | error of the angular momentum, uncorrected | corrected "
    f"| velocity error, m/s, uncorrected | corrected |\n|{'---|' * 11}"
)
_DROP_HEADER = (
    "| object | drop | rad/s | energy at most, uncorrected | corrected "
    f"| highest rebound, m, uncorrected | corrected |\n|{'---|' * 7}"
)


class TumblingOptions(cli.Options):
    """Measures momentum and energy of tumbling bodies, with the correction of Drake's step and not.

    In flight, energy is that of rotation, relative to the start; errors are relative for the
    angular momentum. In drops, energy is kinetic and potential energy relative to the start, above
    the table, and the rebound is the largest height of the centre of mass after the first contact.

    Exit codes:
    0: everything is measured.
    2: it cannot begin.
    130: Ctrl-C.
    """

    speeds: tuple[Positive, ...] = (15, 30, 60)
    """Angular speeds at the start, rad/s, about axes that are drawn."""
    seconds: Count = 4
    """Duration of each flight, s."""
    drops: CountOrZero = 3
    """Number of drops of each object onto the table, at the speeds in turn."""


@dataclass(frozen=True)
class Flight:
    """How a body flew.

    Attributes:
        object: Its name.
        speed: Angular speed at the start, rad/s.
        corrected: Whether the correction was active.
        energy_1s, energy_end, energy_most: Rotational energy relative to the start.
        angular_error: Largest error of the angular momentum relative to the start.
        velocity_error: Largest error of the velocity of the centre of mass, m/s.
    """

    object: str
    speed: float
    corrected: bool
    energy_1s: float
    energy_end: float
    energy_most: float
    angular_error: float
    velocity_error: float


@dataclass(frozen=True)
class Drop:
    """How an object fell onto the table.

    Attributes:
        object: Its name.
        number: Number of the drop, which draws pose and axis.
        speed: Angular speed at the start, rad/s.
        corrected: Whether the correction was active.
        energy_most: Largest mechanical energy relative to the start.
        rebound: Largest height of the centre of mass after the first contact, m.
    """

    object: str
    number: int
    speed: float
    corrected: bool
    energy_most: float
    rebound: float


def _measure(options: TumblingOptions) -> int:
    flights: list[Flight] = []
    drops: list[Drop] = []
    print_now(options, _FLIGHT_HEADER)
    measured = list(benches())
    for bench in measured:
        for speed in options.speeds:
            pair = [fly(bench, speed, corrected, options.seconds) for corrected in (False, True)]
            flights.extend(pair)
            print_now(options, _flight_text(*pair))
    if options.drops:
        print_now(options, f"\n{_DROP_HEADER}")
    for bench in measured:
        for number in range(options.drops if bench.has_shape else 0):
            speed = options.speeds[number % len(options.speeds)]
            pair = [fall(bench, number, speed, corrected) for corrected in (False, True)]
            drops.extend(pair)
            print_now(options, _drop_text(*pair))
    if options.json_output:
        found = {"flights": [asdict(f) for f in flights], "drops": [asdict(d) for d in drops]}
        options.report(found, str)
    return cli.OK


def _flight_text(one: Flight, other: Flight) -> str:
    """Returns a row of the table: uncorrected and corrected."""
    return (
        f"| {one.object} | {one.speed:g} "
        f"| {one.energy_1s:.3g} | {other.energy_1s:.3g} "
        f"| {one.energy_end:.3g} | {other.energy_end:.3g} | {other.energy_most:.3g} "
        f"| {one.angular_error:.1e} | {other.angular_error:.1e} "
        f"| {one.velocity_error:.1e} | {other.velocity_error:.1e} |"
    )


def _drop_text(one: Drop, other: Drop) -> str:
    return (
        f"| {one.object} | {one.number} | {one.speed:g} "
        f"| {one.energy_most:.3f} | {other.energy_most:.3f} "
        f"| {one.rebound:.3f} | {other.rebound:.3f} |"
    )


def fly(bench: Bench, speed: float, corrected: bool, seconds: int) -> Flight:
    """Lets a body tumble under its weight, high above the table."""
    import numpy as np
    from pydrake.math import RigidTransform

    from fleet_tools.config.control import TIME_STEP
    from fleet_tools.sim.free_rotation import normalize_quaternions

    w = _drawn_velocity(np.random.default_rng(round(speed)), speed)
    simulator, context = bench.start(RigidTransform([0.0, 0.0, HIGH]), w, corrected)
    start = bench.motion(context)
    energies, angular_error, velocity_error = [1.0], 0.0, 0.0
    for step in range(1, round(seconds / TIME_STEP) + 1):
        simulator.AdvanceTo(step * TIME_STEP)
        normalize_quaternions(bench.plant, context)
        now = bench.motion(context)
        energies.append(now.rotation_J / start.rotation_J)
        if energies[-1] > _RUNAWAY:
            energies, angular_error, velocity_error = [np.inf], np.inf, np.inf
            break
        v_expected = start.v - [0.0, 0.0, G * step * TIME_STEP]
        angular_error = max(angular_error, _norm(now.L - start.L) / _norm(start.L))
        velocity_error = max(velocity_error, _norm(now.v - v_expected))
    return Flight(
        object=bench.name,
        speed=speed,
        corrected=corrected,
        energy_1s=float(energies[min(round(1 / TIME_STEP), len(energies) - 1)]),
        energy_end=float(energies[-1]),
        energy_most=float(max(energies)),
        angular_error=float(angular_error),
        velocity_error=float(velocity_error),
    )


def fall(bench: Bench, number: int, speed: float, corrected: bool) -> Drop:
    """Drops a body onto the table as it spins."""
    import numpy as np
    from pydrake.math import RigidTransform, RollPitchYaw

    from fleet_tools.config.control import TIME_STEP

    generator = np.random.default_rng(number)
    orientation = RollPitchYaw(generator.uniform(-np.pi, np.pi, 3))
    w = _drawn_velocity(generator, speed)
    above = RigidTransform(orientation, [0.0, 0.0, _DROP_HEIGHT])
    simulator, context = bench.start(above, w, corrected)
    start = bench.motion(context)
    most, rebound, landed = 0.0, 0.0, False
    for step in range(1, round(_DROP_SECONDS / TIME_STEP) + 1):
        simulator.AdvanceTo(step * TIME_STEP)
        now = bench.motion(context)
        most = max(most, now.total_J / start.total_J)
        landed = landed or now.v[2] > -G * (step - 1) * TIME_STEP
        rebound = max(rebound, now.height if landed and now.v[2] > 0 else 0.0)
    return Drop(
        object=bench.name,
        number=number,
        speed=speed,
        corrected=corrected,
        energy_most=float(most),
        rebound=float(rebound),
    )


def _drawn_velocity(generator: "np.random.Generator", speed: float) -> "np.ndarray":
    """Returns an angular velocity about a drawn axis, rad/s."""
    axis = generator.normal(size=3)
    return speed * axis / _norm(axis)


def _norm(vector: "np.ndarray") -> float:
    return math.sqrt(vector @ vector)


PROGRAM = cli.Program(
    "tumbling.py", cli.Command(TumblingOptions, _measure), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())

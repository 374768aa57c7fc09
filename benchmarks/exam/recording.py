"""The expert's episode, with all forces of every time step."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydrake.systems.framework import Context, EventStatus
from scaffold import expert_steps

from fleet_tools.config.control import TIME_STEP
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.sim.hand_force import HandForces
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world_state import WorldState


@dataclass(frozen=True, eq=False)
class Moment:
    """The plant before a time step, and the forces in that step, by degree of freedom.

    Attributes:
        updates: Number of time steps before.
        q, v: Positions and velocities.
        M: Mass matrix, with the reflected inertia of motors.
        bias: Coriolis and centrifugal terms.
        gravity, motors, brakes, contact: Generalized forces, contact as Drake reports it.
        correction: Forces by which free bodies keep their momentum.
        potential: Potential energy, J.
        state: The world state that environments report.
    """

    updates: int
    q: np.ndarray
    v: np.ndarray
    M: np.ndarray
    bias: np.ndarray
    gravity: np.ndarray
    motors: np.ndarray
    brakes: np.ndarray
    contact: np.ndarray
    correction: np.ndarray
    potential: float
    state: WorldState

    @property
    def kinetic(self) -> float:
        """Kinetic energy, J."""
        return float(self.v @ self.M @ self.v) / 2


@dataclass(frozen=True, eq=False)
class Step:
    """A time step: its forces, and the next state."""

    before: Moment
    after: Moment

    @property
    def v_mean(self) -> np.ndarray:
        """Mean of the velocities before and after, with which a force's work changes energy."""
        return (self.before.v + self.after.v) / 2

    @property
    def other(self) -> np.ndarray:
        """Generalized forces of the motion besides gravity, motors, brakes and correction.

        They follow from Drake's step, M (v1 - v0) / h + bias = forces. They are the forces of
        contact, and of the ends of joints, which Drake does not report.
        """
        now = self.before
        acceleration = (self.after.v - now.v) / TIME_STEP
        known = now.gravity + now.motors + now.brakes + now.correction
        return now.M @ acceleration + now.bias - known


@dataclass(frozen=True, eq=False)
class Recording:
    """An episode of the expert.

    Attributes:
        name: Names of tool and object.
        simulation: The simulation at the end of the episode.
        outcome: Outcome of the episode.
        control_steps: The time steps of each control step.
        hand_forces: Contact metrics of each control step.
        arm, object: Degrees of freedom of arm and object.
    """

    name: str
    simulation: Simulation
    outcome: str
    control_steps: Sequence[Sequence[Step]]
    hand_forces: Sequence[HandForces]
    arm: np.ndarray
    object: np.ndarray

    @property
    def steps(self) -> list[Step]:
        """Its time steps."""
        return [step for steps in self.control_steps for step in steps]

    def work(self, kind: str) -> float:
        """Returns the work of a kind of forces, an attribute of `Moment`, J."""
        return TIME_STEP * sum(float(getattr(s.before, kind) @ s.v_mean) for s in self.steps)


def record(task: str, object: str, seed: int) -> Recording:
    """Runs the expert's episode, and records it.

    Args:
        task: Name of the task.
        object: Name of the object.
        seed: Seed of the scene, the tool included.

    Raises:
        AssertionError: The recorded steps lead elsewhere than the episode's.
    """
    env = EnvSpec.of(task=task, object=object).make_tool_use()
    control_steps: list[list[Step]] = []
    hand_forces: list[HandForces] = []
    for _, action in expert_steps(env, [seed]):
        simulation = env.simulation
        assert simulation is not None  # during an episode
        before = simulation.snapshot()
        env.step(action)
        after = simulation.snapshot()
        hand_forces.append(after.hand_forces)
        # Again, with the reference that the control step began with.
        moments: list[Moment] = []
        simulator = simulation._simulator  # an exam looks inside
        simulation.restore(replace(before, reference=after.reference))
        note(simulation, moments)
        simulator.set_monitor(lambda _, s=simulation, m=moments: note(s, m))
        simulator.AdvanceTo(simulation.world.simulated_until(after.step))
        simulator.clear_monitor()
        assert simulation.snapshot().x.tobytes() == after.x.tobytes(), "another trajectory"
        simulation.restore(after)
        pairs = itertools.pairwise(moments)
        control_steps.append([Step(a, b) for a, b in pairs if b.updates > a.updates])
    simulation = env.simulation
    assert simulation is not None
    world, everything = simulation.world, np.arange(simulation.world.plant.num_velocities())
    return Recording(
        name=f"{simulation.tool.name}, {simulation.object.name}",
        simulation=simulation,
        outcome=env.get_state().outcome,
        control_steps=control_steps,
        hand_forces=hand_forces,
        arm=world.plant.GetVelocitiesFromArray(world.arm, everything).astype(int),
        object=world.plant.GetVelocitiesFromArray(world.object, everything).astype(int),
    )


def note(simulation: Simulation, moments: list[Moment]) -> EventStatus:
    """Adds the present moment to a list."""
    world, context = simulation.world, simulation._context
    plant, models = world.plant, (world.arm, world.object)
    contact = np.zeros(plant.num_velocities())
    for model in models:
        forces = plant.get_generalized_contact_forces_output_port(model).Eval(context)
        plant.SetVelocitiesInArray(model, forces, contact)
    efforts = plant.get_net_actuation_output_port().Eval(context)
    of_model = [np.zeros(plant.num_actuators()), np.zeros(plant.num_actuators())]
    for model, own in zip(models, of_model, strict=True):
        for index in map(int, plant.GetJointActuatorIndices(model)):
            own[index] = efforts[index]
    motors, brakes = (plant.MakeActuationMatrix() @ own for own in of_model)
    moments.append(
        Moment(
            updates=simulation._simulator.get_num_discrete_updates(),
            q=plant.GetPositions(context).copy(),
            v=plant.GetVelocities(context).copy(),
            M=plant.CalcMassMatrix(context),
            bias=plant.CalcBiasTerm(context),
            gravity=plant.CalcGravityGeneralizedForces(context),
            motors=motors,
            brakes=brakes,
            contact=contact,
            correction=_applied(simulation, context),
            potential=plant.CalcPotentialEnergy(context),
            state=simulation.world_state(),
        )
    )
    return EventStatus.Succeeded()


def _applied(simulation: Simulation, context: Context) -> np.ndarray:
    port = simulation.world.plant.get_applied_generalized_force_input_port()
    if not port.HasValue(context):
        return np.zeros(port.size())
    return port.Eval(context).copy()

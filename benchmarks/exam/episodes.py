"""Nail, nut, hand and energy in recorded episodes of the expert."""

from collections.abc import Callable, Iterator

import numpy as np

from exam import Answer, G
from exam.recording import Recording, Step, record
from fleet_tools.config.control import TIME_STEP
from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.robot.osc import external_wrench
from fleet_tools.sim.catalog import model_names
from fleet_tools.sim.world_state import WorldState


def answers(objects: tuple[str, ...] = ()) -> Iterator[Answer]:
    """Yields the answers of an episode with each object.

    Args:
        objects: Names of objects; all if there are none.
    """
    for task in task_names():
        for seed, name in enumerate(model_names("object", load_task(task).object_family)):
            if not objects or name in objects:
                episode = record(task, name, seed)
                for law in (*_LAWS_OF_TASK.get(task, ()), energy, *IMPULSES):
                    yield law(episode)


def work_on_nail(episode: Recording) -> Answer:
    """Returns the work of contact on the nail, up to the soft end of its way."""
    simulation, (slide,) = episode.simulation, episode.object
    plant = simulation.world.plant
    joint = plant.GetJointByName("slide", simulation.world.object)
    end, position = joint.position_upper_limits()[0] - 3e-3, joint.position_start()
    steps = [step for step in episode.steps if step.after.q[position] < end]
    work = TIME_STEP * sum(s.before.contact[slide] * s.v_mean[slide] for s in steps)
    last = steps[-1].after
    weight = last.gravity[slide]
    resistance = simulation.scene.joint_resistance["slide"]
    kinetic = last.M[slide, slide] * last.v[slide] ** 2 / 2
    expected = (resistance - weight) * last.q[position] + kinetic
    return Answer("work on the nail", episode.name, float(expected), float(work), "J")


def torque_on_nut(episode: Recording) -> Answer:
    """Returns the hand's torque about the nut's axis while the nut turns, from motors' torques."""
    simulation, (turn,) = episode.simulation, episode.object
    p_WAxis = simulation.world_state().X_WO.translation()
    torques = []
    for step in episode.steps:
        if step.before.v[turn] > 0.1:  # rad/s
            p_WE, moment, force = _on_the_hand(episode, step)
            torques.append(moment[2] + np.cross(p_WE - p_WAxis, force)[2])
    resistance = simulation.scene.joint_resistance["turn"]
    # The axis goes down, and the nut turns the hand back.
    return Answer("torque on the nut", episode.name, resistance, float(np.mean(torques)), "N m")


def weight_on_blade(episode: Recording) -> Answer:
    """Returns the weight of the slab that lies on the blade at the end."""
    simulation = episode.simulation
    (slab,) = simulation.world.bodies(simulation.world.object)
    weight = slab.get_mass(simulation._context) * G
    _, _, force = _on_the_hand(episode, episode.steps[-1])
    return Answer("weight on the blade", episode.name, weight, float(-force[2]), "N")


def lever_of_weight(episode: Recording) -> Answer:
    """Returns the horizontal distance of that slab's centre of mass from the end effector."""
    ((p_WCom, _),) = episode.simulation.world_state().links.values()
    p_WE, moment, force = _on_the_hand(episode, episode.steps[-1])
    lever = float(np.linalg.norm((p_WCom - p_WE)[:2]))
    measured = float(np.linalg.norm(moment[:2]) / -force[2])
    return Answer("lever of the weight", episode.name, lever, measured, "m")


def energy(episode: Recording) -> Answer:
    """Returns the energy that brake, contact and the end of the nail's way take, in two ways."""
    first, last = episode.steps[0].before, episode.steps[-1].after
    stored = last.kinetic + last.potential - first.kinetic - first.potential
    joints = episode.object if len(episode.object) == 1 else []
    stop = TIME_STEP * sum(
        (step.other - step.before.contact)[k] * step.v_mean[k]
        for step in episode.steps
        for k in joints
    )
    lost = -episode.work("brakes") - episode.work("contact") - float(stop)
    given = episode.work("motors") + episode.work("correction") - stored
    return Answer("energy of an episode", episode.name, lost, given, "J")


def impulses(episode: Recording) -> Answer:
    """Returns the sums of the sizes of impulses on the arm, from its motion and as observed."""
    arm = episode.arm
    needed = [np.linalg.norm(step.other[arm]) for step in episode.steps]
    reported = [np.linalg.norm(step.before.state.tau_external) for step in episode.steps]
    return _impulses("impulses of contact", episode, needed, reported, "N m s")


def impulses_of_wrench(episode: Recording) -> Answer:
    """Returns the same of the force on the hand, and of the observed wrench on it."""
    needed = [np.linalg.norm(_on_the_hand(episode, step)[2]) for step in episode.steps]
    reported = [np.linalg.norm(step.before.state.F_E[3:]) for step in episode.steps]
    return _impulses("impulses of the observed wrench", episode, needed, reported)


def impulses_on_tool(episode: Recording) -> Answer:
    """Returns the same of `info["forces"]`, while the hand does not touch the table."""
    table = {("table", "tool"), ("robot", "table")}
    steps = [step for step in episode.steps if not table & step.before.state.contacts]
    needed = [np.linalg.norm(_on_the_hand(episode, step)[2]) for step in steps]
    reported = [np.linalg.norm(step.before.state.forces()["tool_force_N"]) for step in steps]
    return _impulses("impulses on the tool", episode, needed, reported)


def impulses_of_metrics(episode: Recording) -> Answer:
    """Returns the same of contact metrics, in control steps that touch object or table alone."""
    needed, reported = [], []
    for steps, done in zip(episode.control_steps, episode.hand_forces, strict=True):
        if {"object", "table"} not in [_touched(episode, step.before.state) for step in steps]:
            needed += [np.linalg.norm(_on_the_hand(episode, step)[2]) for step in steps]
            reported.append((done.object_impulse_Ns + done.table_impulse_Ns) / TIME_STEP)
    return _impulses("impulses of contact metrics", episode, needed, reported)


def _impulses(
    law: str, episode: Recording, needed: list, reported: list, unit: str = "N s"
) -> Answer:
    expected, measured = (TIME_STEP * float(np.sum(forces)) for forces in (needed, reported))
    return Answer(law, episode.name, expected, measured, unit)


IMPULSES = (impulses, impulses_of_wrench, impulses_on_tool, impulses_of_metrics)
"""The law of forces, for every report of forces: within 1%."""


def _touched(episode: Recording, state: WorldState) -> set[str]:
    """Returns whether the hand touches moving links ("object"), or else anything ("table")."""
    world = episode.simulation.world
    welded = world.plant.GetBodiesWeldedTo(world.plant.world_body())
    fixed = {"table"} | {f"object/{b.name()}" for b in world.bodies(world.object) if b in welded}
    others = [{*pair} - {"robot", "tool"} for pair in state.contacts if {"robot", "tool"} & {*pair}]
    return {"table" if other <= fixed else "object" for other in others}


def _on_the_hand(episode: Recording, step: Step) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns p_WE, and moment and force on the hand in the world, from the motors' torques."""
    model = episode.simulation.world.adjustable.arm_model
    plant, arm = episode.simulation.world.plant, episode.simulation.world.arm
    q = plant.GetPositionsFromArray(arm, step.before.q)
    dynamics, X_WE = model.dynamics(q, step.before.v[episode.arm])
    F_W = external_wrench(dynamics.J, step.other[episode.arm])
    return X_WE[:, 3], F_W[:3], F_W[3:]


_LAWS_OF_TASK: dict[str, tuple[Callable[[Recording], Answer], ...]] = {
    "hammer": (work_on_nail,),
    "wrench": (torque_on_nut,),
    "spatula": (weight_on_blade, lever_of_weight),
}

"""Drake's SAP solver stops early when a slab lies flat: `python drake_sap_early_stop.py`.

A box falls 0.3 m beside a slab at rest of 10 x 7 x 1 cm, and never touches it. Compares the force
that Drake reports for the box with m ((v1 - v0) / h - g). A slab with a top 5 um smaller is fine.
"""

# pyright: reportArgumentType=false
from collections.abc import Iterator
from importlib.metadata import version

import numpy as np
from pydrake import all as drake

H, MASS = 0.004, 1.0  # s, kg
CORNERS = [(x, y, z) for x in (-0.05, 0.05) for y in (-0.035, 0.035) for z in (-0.005, 0.005)]
TAPERED = np.transpose([np.multiply(p, [1 - 5e-5 * (p[2] > 0)] * 2 + [1]) for p in CORNERS])
SLABS = {"Box": drake.Box(0.1, 0.07, 0.01), "narrower top": drake.Convex(TAPERED, "slab")}


def steps(approximation: str, slab: drake.Shape) -> Iterator[tuple]:
    """After each step: plant, context, force on the box as reported and as in its motion, N."""
    builder = drake.DiagramBuilder()
    config = drake.MultibodyPlantConfig(time_step=H, discrete_contact_approximation=approximation)
    plant, inertia = drake.AddMultibodyPlant(config, builder)[0], drake.SpatialInertia
    flat = plant.AddRigidBody("slab", inertia.SolidBoxWithMass(0.3, 0.1, 0.07, 0.01))
    own, cube = plant.AddModelInstance("box"), drake.Box(0.06, 0.06, 0.06)
    box = plant.AddRigidBody("box", own, inertia.SolidBoxWithMass(MASS, 0.06, 0.06, 0.06))
    table = (plant.world_body(), drake.Box(2.0, 2.0, 0.1), 0.0)
    for body, shape, modulus in (flat, slab, 5e4), (box, cube, 1e6), table:
        made = drake.ProximityProperties()
        drake.AddContactMaterial(200.0, None, drake.CoulombFriction(0.5, 0.5), made)
        if modulus:
            drake.AddCompliantHydroelasticProperties(0.01, modulus, made)
            made.AddProperty("hydroelastic", "margin", 1e-4)
        else:
            drake.AddRigidHydroelasticProperties(0.5, made)
        plant.RegisterCollisionGeometry(body, drake.RigidTransform(), shape, body.name(), made)
    plant.Finalize()
    simulator = drake.Simulator(builder.Build())
    context = plant.GetMyMutableContextFromRoot(simulator.get_mutable_context())
    plant.SetPositions(context, [1.0, 0, 0, 0, 0, 0.3, 0.05495, 0.96, 0.224, 0.168, 0, 0, 0, 0.105])
    plant.SetVelocities(context, [0.0] * 9 + [0.3, 0.0, -1.0])
    for step in range(100):
        v0 = plant.GetVelocities(context, own)
        simulator.AdvanceTo((step + 1) * H)
        motion = MASS * ((plant.GetVelocities(context, own) - v0)[3:] / H + [0.0, 0.0, 9.81])
        reported = plant.get_generalized_contact_forces_output_port(own).Eval(context)
        yield plant, context, reported[3:], motion


def largest_difference(approximation: str, slab: str) -> np.ndarray:
    """Norms of both forces and of their difference, (3,), N, in the step where it is largest."""
    a, b = np.swapaxes([step[2:] for step in steps(approximation, SLABS[slab])], 0, 1)
    return max(np.linalg.norm([a, b, a - b], axis=2).T, key=lambda norms: norms[2])


if __name__ == "__main__":
    print(f"Drake {version('drake'):14}  reported, N  motion, N  difference, N")
    for case in ((a, slab) for a in ("lagged", "similar", "sap") for slab in SLABS):
        print("{:8}{:12}{:13.2f}{:11.2f}{:15.1e}".format(*case, *largest_difference(*case)))

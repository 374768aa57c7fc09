"""Python systems in Drake diagrams."""

from pydrake.systems.framework import LeafSystem


def release_builder(system: LeafSystem) -> None:
    """Lets a Python system be freed with its diagram; called once its ports are connected.

    Drake keeps a Python system alive as long as its diagram, and ties it to the builder by a
    reference which keeps the diagram alive: without this, nothing would ever be freed
    (RobotLocomotion/drake issues 22515 and 23161).
    """
    vars(system).pop("_pydrake_internal_ref_cycle_peers", None)

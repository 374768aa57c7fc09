"""Python systems in Drake diagrams."""


def release_cycles(*objects: object) -> None:
    """Lets a Python system be freed with its diagram; called once its ports are connected.

    Drake keeps a Python system alive as long as its diagram, and ties it to the builder by a
    reference which keeps the diagram alive: without this, nothing would ever be freed
    (RobotLocomotion/drake issues 22515, 23161 and 23930).

    Args:
        objects: The system, and the functions that it declared as updates.
    """
    for each in objects:
        vars(each).pop("_pydrake_internal_ref_cycle_peers", None)

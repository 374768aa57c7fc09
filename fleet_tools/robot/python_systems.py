"""Python systems in Drake diagrams, and their release from memory."""

import functools
import gc
import weakref

from pydrake.systems.framework import BasicVector, Context, DiagramBuilder, LeafSystem

REFERENCES = "_pydrake_internal_ref_cycle_peers"
"""Attribute in which Drake's bindings keep what a Python object refers to in C++."""


def release_cycles(*objects: object) -> None:
    """Lets a Python system be freed with its diagram; called once its ports are connected.

    Drake's bindings tie a Python system and the builder of its diagram to each other. Garbage
    collection frees both, but not in bindings (1.51 and earlier) in which the diagram keeps the
    system alive out of sight of Python (RobotLocomotion/drake issues 22515, 23161 and 23930).
    There, the references are taken away. Elsewhere they must stay: they own the functions that the
    system declared, which Drake would call after they are freed.

    Args:
        objects: The system, and the functions that it declared as updates.
    """
    if not drake_frees_python_systems():
        for each in objects:
            vars(each).pop(REFERENCES, None)


@functools.cache
def drake_frees_python_systems() -> bool:
    """Returns whether a diagram with a Python system is freed once nothing refers to it.

    It is tried once, with a diagram of one system.
    """
    builder = DiagramBuilder()
    system = weakref.ref(builder.AddSystem(_Constant()))
    builder.Build()
    del builder
    gc.collect()
    return system() is None


class _Constant(LeafSystem):
    """A system like this package's: its output is a function that does not refer to it."""

    def __init__(self) -> None:
        super().__init__()

        def calc(context: Context, output: BasicVector) -> None:
            output.SetFromVector([0.0])

        self.DeclareVectorOutputPort("constant", 1, calc)

"""Python systems in Drake diagrams are freed with them, and work until then."""

import gc
import weakref

import numpy as np
import pytest
from pydrake.systems.analysis import Simulator
from pydrake.systems.framework import (
    BasicVector,
    Context,
    Diagram,
    DiagramBuilder,
    DiscreteValues,
    LeafSystem,
)

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.robot.python_systems import REFERENCES, drake_frees_python_systems, release_cycles


class Counter(LeafSystem):
    """Its output is twice the number of its updates."""

    def __init__(self) -> None:
        super().__init__()

        def calc(context: Context, output: BasicVector) -> None:
            output.SetFromVector(2 * context.get_discrete_state_vector().value())

        def update(context: Context, values: DiscreteValues) -> None:
            values.get_mutable_vector().get_mutable_value()[:] += 1

        self.update = update
        self.DeclareDiscreteState(1)
        self.DeclareVectorOutputPort("twice", 1, calc)
        self.DeclarePeriodicDiscreteUpdateEvent(1.0, 0.0, update)


def build(release: bool) -> tuple[Diagram, Counter]:
    builder = DiagramBuilder()
    counter = builder.AddSystem(Counter())
    builder.ExportOutput(counter.get_output_port(), "twice")
    if release:
        release_cycles(counter, counter.update)
    return builder.Build(), counter


def is_freed(release: bool) -> bool:
    references = [weakref.ref(each) for each in build(release)]
    gc.collect()
    return all(reference() is None for reference in references)


def test_a_released_system_works_and_is_freed_with_its_diagram():
    diagram, _ = build(release=True)
    gc.collect()
    simulator = Simulator(diagram)
    simulator.AdvanceTo(2.5)
    np.testing.assert_array_equal(diagram.GetOutputPort("twice").Eval(simulator.get_context()), [6])
    assert is_freed(release=True)


def test_references_are_taken_away_only_where_drake_would_keep_the_system_alive():
    """What the attribute of Drake's bindings does, in the version that is installed."""
    _, untouched = build(release=False)
    _, released = build(release=True)
    assert vars(untouched)[REFERENCES]
    assert drake_frees_python_systems() == is_freed(release=False) == (REFERENCES in vars(released))


@pytest.mark.parametrize("task", ["hammer", pytest.param("spatula", marks=pytest.mark.slow)])
def test_rebuilt_worlds_do_not_pile_up(task: str):
    env = EnvSpec.of(task=task).make_tool_use()
    worlds = []
    for seed in range(5):
        env.reset(seed=seed)
        worlds.append(weakref.ref(env.simulation.world.diagram))
    assert len(set(map(id, worlds))) > 2
    env.close()
    gc.collect()
    assert not any(world() for world in worlds)

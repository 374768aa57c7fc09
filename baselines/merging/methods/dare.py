"""DARE: most entries of the task vectors are dropped at random, and the others made larger."""

import numpy as np
import torch

from fleet_tools.baselines.merging.average import weighted_sum
from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.methods.content_order import content_seed, digest
from fleet_tools.baselines.merging.methods.task_vectors import (
    TaskVector,
    add_to_base,
    task_vectors,
)
from fleet_tools.baselines.merging.methods.ties import ties_mean
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.symmetry.table import State

THEN = ("average", "ties")


def dare(
    problem: MergeProblem,
    *,
    drop: float = 0.9,
    then: str = "average",
    density: float = 0.2,
    scale: float = 1.0,
) -> MergeResult:
    """Drops each entry of the task vectors with a probability, rescales the others, and merges.

    Yu et al., "Language Models are Super Mario: Absorbing Abilities from Homologous Models as a
    Free Lunch", 2024: entries that are kept are divided by 1 - drop, so that each keeps its
    expectation.

    The result does not depend on the order of the models: what is dropped is drawn from the
    problem's seed and the contents of model and tensor, so that tied weights stay tied.

    Args:
        problem: The models and their base.
        drop: Probability with which an entry is dropped; 0.9 is among the paper's values for large
            fine-tuned models, whose task vectors are small. It is much for networks trained from
            random weights.
        then: "average" of the task vectors, as `task_arithmetic`, or "ties".
        density: Fraction that `ties` keeps of what is left and of the zeros; unused by "average".
        scale: Multiple of the merged task vector; see `task_arithmetic` and `ties`.

    Raises:
        MergeError: There is no base, `then` is unknown, `drop` is not from 0 to below 1, or see
            `ties`.
    """
    if then not in THEN:
        raise MergeError(f"DARE is followed by {then!r}; known are {', '.join(THEN)}.")
    if not 0 <= drop < 1:
        raise MergeError(f"The probability to drop is {drop}. Give a number from 0 to below 1.")
    vectors = [
        _thinned(vector, drop, problem.seed, model)
        for vector, model in zip(task_vectors(problem), problem.models, strict=True)
    ]
    weights = problem.normalized_weights.tolist()
    if then == "average":
        return add_to_base(problem, weighted_sum(vectors, weights).terms, scale)
    return add_to_base(problem, ties_mean(vectors, weights, density), scale)


def _thinned(vector: TaskVector, drop: float, seed: int, model: State) -> TaskVector:
    of_model = digest(model)

    def kept(name: str) -> torch.Tensor:
        of_tensor = digest({name: model[name]})
        generator = np.random.default_rng(content_seed(seed, 0, of_model, of_tensor))
        return torch.from_numpy(generator.random(vector[name].shape) >= drop)

    return {
        name: tensor * kept(name).to(tensor.device) / (1 - drop) for name, tensor in vector.items()
    }

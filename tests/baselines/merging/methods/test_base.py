"""The base of a merge problem: weights from which all models were trained."""

import pytest

torch = pytest.importorskip("torch")

from support.merging_cases import WIDE

from fleet_tools.baselines.merging.errors import ModelMismatchError
from fleet_tools.baselines.merging.problem import MergeProblem

MLP = WIDE["mlp"]
MODELS = [MLP.build(seed).state_dict() for seed in range(2)]
BASE = MLP.build(2).state_dict()


def test_the_base_is_brought_into_the_order_of_the_table():
    shuffled = {name: BASE[name] for name in sorted(BASE, reverse=True)}
    base = MergeProblem(MLP.symmetry, MODELS, base=shuffled).base
    assert base is not None and list(base) == list(MLP.symmetry.axes)
    assert all(torch.equal(base[name], BASE[name]) for name in base)
    assert MergeProblem(MLP.symmetry, MODELS).base is None


@pytest.mark.parametrize(
    "base",
    [
        WIDE["conv"].build().state_dict(),
        {name: tensor.half() for name, tensor in BASE.items()},
        {name: tensor for name, tensor in BASE.items() if name != "0.bias"},
    ],
)
def test_a_base_of_another_form_is_refused(base):
    with pytest.raises(ModelMismatchError, match="The base, here model 2"):
        MergeProblem(MLP.symmetry, MODELS, base=base)

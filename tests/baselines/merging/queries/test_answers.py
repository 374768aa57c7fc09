"""What a data holder answers: losses and their gradients."""

import pytest

torch = pytest.importorskip("torch")

from support.merging_cases import WIDE, make_data_holder

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.queries.data_holder import LocalDataHolder
from fleet_tools.baselines.merging.queries.traffic import TrafficMeter

MLP = WIDE["mlp"]


def ask(holder, model, seed, gradient=True):
    return TrafficMeter().ask(holder, model, seed, gradient)


def test_the_gradient_of_an_answer_is_that_of_the_loss():
    local = make_data_holder(MLP, torch.ones(40, 2))
    state = MLP.build(3).state_dict()
    answer = ask(local, state, seed=5)
    name, step = "2.weight", 1e-6
    direction = torch.randn_like(state[name])
    up, down = (
        ask(local, state | {name: state[name] + sign * step * direction}, 5, gradient=False).loss
        for sign in (1, -1)
    )
    slope = float((answer.gradient[name] * direction).sum())
    assert slope == pytest.approx((up - down) / (2 * step), rel=1e-4)
    assert ask(local, state, 5).loss == answer.loss != ask(local, state, 6).loss
    everything = ask(local, state, None).loss
    assert everything == ask(local, state, None).loss


def test_buffers_and_unused_parameters_have_no_gradients():
    class Policy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.unused = torch.nn.BatchNorm1d(2), torch.nn.Linear(1, 1)

        def forward(self, x):
            return self.norm(x)

    for training in (True, False):
        policy = Policy().train(training)
        before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
        inputs = torch.arange(8.0).reshape(4, 2)
        local = LocalDataHolder(policy, lambda policy, seed, x=inputs: (policy(x) * x).sum())
        answer = ask(local, before, 0)
        assert set(answer.gradient) == {"norm.weight", "norm.bias"}
        assert all(torch.equal(t, before[name]) for name, t in policy.state_dict().items())


def test_tied_weights_are_differentiated_once():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, False))
    model[1].weight = model[0].weight
    local = LocalDataHolder(model, lambda policy, seed: policy(torch.ones(1, 3)).sum())
    answer = ask(local, model.state_dict(), 0)
    assert set(answer.gradient) == {"0.weight"}
    (expected,) = torch.autograd.grad(model(torch.ones(1, 3)).sum(), model[0].weight)
    torch.testing.assert_close(answer.gradient["0.weight"], expected)


def test_a_query_about_another_architecture_is_refused():
    local = make_data_holder(MLP, torch.ones(40, 2))
    with pytest.raises(MessageError, match=r"another architecture .*: 0\.bias"):
        ask(local, WIDE["elman"].build().state_dict(), 0)

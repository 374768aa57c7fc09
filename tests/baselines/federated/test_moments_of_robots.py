"""Robots answer with moments, by which methods merge."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from support.fleet_cases import local, plan_of, run_rounds

from fleet_tools.baselines.federated.transport import LostRobot
from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.dataset.samples import Samples

MLP = {"body": {"type": "mlp", "layers": 1, "width": 6}}
LINEAR = {"body": {"type": "mlp", "layers": 0}}


@pytest.mark.parametrize("body", ["elman", "lstm", "gru", "mlp", "transformer"])
@pytest.mark.parametrize("method", ["regmean", "least_squares", "head_refit"])
def test_policies_of_every_body_are_merged(data: Path, body: str, method: str) -> None:
    sizes = {"heads": 2, "feedforward": 8, "context": 3} if body == "transformer" else {}
    policy = {"body": {"type": body, "layers": 2, "width": 6, **sizes}}
    plan = plan_of(data, policy=policy, method=method, options={"alignment": "activations"})
    for result in run_rounds(plan):
        assert np.isfinite(result.loss)
        assert all(robot.left_out is None for robot in result.robots.values())


def test_the_linear_control_is_least_squares_on_all_steps_of_the_robots(data: Path) -> None:
    """Independently of training and messages: numpy's least squares on the pooled episodes."""
    changes = {"policy": LINEAR, "method": "head_refit", "options": {"ridge": 1e-9}}
    plan = plan_of(data, merge_every=None, **changes)
    (result,) = run_rounds(plan)
    robots = [Samples(a.data).subset(a.episodes) for a in plan.assignments]
    inputs, actions = [], []
    network = plan.blueprint.create()
    for samples in robots:
        trajectories = Trajectories(samples, plan.blueprint)
        (items,) = trajectories.order(10**6, None)
        batch = trajectories.batch(items)
        with torch.no_grad():
            state = network.scaled_state(batch.observations)  # pyright: ignore
        inputs.append(np.pad(state.flatten(0, 1).numpy(), ((0, 0), (0, 1)), constant_values=1.0))
        actions.append(batch.actions.flatten(0, 1).flatten(1).numpy())
    expected = np.linalg.lstsq(np.vstack(inputs), np.vstack(actions))[0]
    np.testing.assert_allclose(result.weights["head.weight"].T, expected[:-1], atol=2e-3)
    np.testing.assert_allclose(result.weights["head.bias"], expected[-1], atol=2e-3)


def test_statistics_are_counted_and_do_not_grow_with_the_data(data: Path, tmp_path: Path) -> None:
    averaged, fitted = (
        run_rounds(plan_of(data, policy=MLP, merge_every=None, method=method))[0]
        for method in ("naive_average", "regmean")
    )
    for robot in fitted.robots:
        one, other = averaged.robots[robot].traffic, fitted.robots[robot].traffic
        weights = one.bytes_from_robots
        assert other.calls == one.calls + 1
        assert weights < other.bytes_to_robots - one.bytes_to_robots + 1000
        # Triangles of 14 x 14 and 7 x 7 in single precision, and names.
        assert 0 < other.bytes_from_robots - weights - 4 * (14 * 15 + 7 * 8) // 2 < 400


def test_the_base_is_needed_to_refit_it(data: Path) -> None:
    with pytest.raises(MergeError, match="needs the weights from which"):
        run_rounds(plan_of(data, policy=MLP, method="head_refit", options={"of": "base"}))


def test_a_robot_that_answers_with_observations_is_left_out(data: Path) -> None:
    """It lies: moments with rows of data beside them."""
    plan = plan_of(data, policy=MLP, method="regmean", merge_every=None)
    transport = _Lying(local(plan), liar=1)
    (result,) = run_rounds(plan, transport)
    assert "'observations', which no moments" in (result.robots[1].left_out or "")
    assert result.robots[0].left_out is None and np.isfinite(result.loss)


class _Lying:
    def __init__(self, inner, liar):
        self._inner, self._liar = inner, liar

    def exchange(self, messages, *, deadline_s=None):
        from safetensors.torch import load, save

        for robot, answer in self._inner.exchange(messages, deadline_s=deadline_s):
            if robot == self._liar and not isinstance(answer, LostRobot):
                tensors = load(answer)
                if any(name.startswith("inputs.") for name in tensors):
                    answer = save(
                        tensors | {"observations": torch.zeros(3, 4)}, {"kind": "moments"}
                    )
            yield robot, answer

    def late(self):
        return self._inner.late()

    def end(self, robot):
        self._inner.end(robot)

    def close(self):
        self._inner.close()

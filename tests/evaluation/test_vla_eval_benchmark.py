"""The tasks as a benchmark of vla-eval."""

import asyncio
import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.repeated_results import action_of, result_of

from fleet_tools.errors import ConfigError, MissingLibraryError, UnknownNameError
from fleet_tools.evaluation.vla_eval_benchmark import ToolUseBenchmark

CLASS = "fleet_tools.evaluation.vla_eval_benchmark:ToolUseBenchmark"


def test_without_the_harness_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vla_eval", None)
    monkeypatch.setitem(sys.modules, "vla_eval.specs", None)
    with pytest.raises(MissingLibraryError, match="pip install vla-eval"):
        ToolUseBenchmark()


@pytest.fixture(name="harness", scope="module")
def _harness() -> Any:
    return pytest.importorskip("vla_eval", reason="needs vla-eval, see submitting.md")


def config(tasks: list[str], episodes: int, **params: Any) -> dict[str, Any]:
    run = {"benchmark": CLASS, "episodes_per_task": episodes, "tasks": tasks, "params": params}
    return {"benchmarks": [run], "server": {"timeout": 120}}


def evaluated(harness: Any, server: Any, *arguments: Any, **params: Any) -> dict[str, Any]:
    given = config(*arguments, **params)
    return harness.evaluate(server, given, docker=False, no_save=True)[0]


@pytest.fixture(name="server", scope="module")
def _server(harness: Any) -> Any:
    """A class of servers that repeat actions of results, and append `more` to each."""
    from vla_eval.model_servers.predict import PredictModelServer  # pyright: ignore[reportMissingImports]

    class RepeatingServer(PredictModelServer):
        def __init__(self, more: int = 0) -> None:
            super().__init__()
            self.more, self.seen = more, {}

        async def on_episode_start(self, config: dict[str, Any], ctx: Any) -> None:
            await super().on_episode_start(config, ctx)
            self.task = config["task"]

        def predict(self, obs: dict[str, Any], ctx: Any) -> dict[str, Any]:
            self.seen = obs
            task, split = self.task["name"].split("/")
            action = action_of(result_of(task, self.task["episode_idx"], split), ctx.step)
            return {"actions": np.concatenate([action, np.zeros(self.more, np.float32)])}

        def get_action_spec(self) -> dict[str, Any]:
            return ToolUseBenchmark().get_action_spec()

        def get_observation_spec(self) -> dict[str, Any]:
            return {}

    return RepeatingServer


def test_it_has_what_the_harness_calls(harness: Any) -> None:
    from vla_eval.benchmarks.base import Benchmark  # pyright: ignore[reportMissingImports]

    for name, theirs in inspect.getmembers(Benchmark):
        if name.startswith("_"):
            continue
        ours = inspect.getattr_static(ToolUseBenchmark, name)
        assert type(ours) is type(inspect.getattr_static(Benchmark, name)), name
        found = getattr(ToolUseBenchmark, name)
        assert inspect.iscoroutinefunction(found) is inspect.iscoroutinefunction(theirs), name
        if callable(theirs):
            parameters = list(inspect.signature(theirs).parameters)
            assert list(inspect.signature(found).parameters) == parameters, name


@pytest.mark.slow
def test_success_is_what_evaluate_counts(harness: Any, server: Any) -> None:
    serving = server()
    found = evaluated(harness, serving, ["hammer/train", "wrench/train"], 2)
    assert not found.get("num_errors")
    for task in found["tasks"]:
        name = task["task"].split("/")[0]
        expected = [result_of(name, number) for number in range(2)]
        told = [(each["metrics"], each["steps"]) for each in task["episodes"]]
        assert [steps for _, steps in told] == [each.steps for each in expected]
        for fact in ("success", "success_once", "outcome"):
            assert [each[fact] for each, _ in told] == [getattr(e, fact) for e in expected]
        assert task["mean_success"] == sum(each.success for each in expected) / 2
    assert not found["tasks"][1]["episodes"][1]["metrics"]["success"]
    assert serving.seen["task_description"].startswith("An open-ended wrench")
    assert serving.seen["state"].dtype == np.float32


def test_an_action_with_a_gripper_is_an_error_and_no_failure(harness: Any, server: Any) -> None:
    found = evaluated(harness, server(more=1), ["hammer/train"], 1)
    (episode,) = found["tasks"][0]["episodes"]
    assert found["num_errors"] == 1
    assert "InvalidActionError" in episode["failure_detail"] and "(7,)" in episode["failure_detail"]


def test_no_scene_is_run_twice(harness: Any) -> None:
    benchmark = ToolUseBenchmark()
    assert benchmark.get_metadata()["max_episodes_per_task"] == 20
    task = {**benchmark.get_tasks()[0], "episode_idx": 20}
    with pytest.raises(ConfigError, match="hammer/train has 20 scenes, but episode 20"):
        asyncio.run(benchmark.start_episode(task))


def test_what_does_not_exist_is_named(harness: Any, tmp_path: Path) -> None:
    for params, match in (
        ({"level": "harder"}, "nominal"),
        ({"split": "test"}, "unseen_pairs"),
        ({"protocol": str(tmp_path / "none.yaml")}, "none.yaml"),
    ):
        with pytest.raises((UnknownNameError, ConfigError), match=match):
            ToolUseBenchmark(**params)

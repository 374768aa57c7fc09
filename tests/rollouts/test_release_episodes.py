"""What other processes answer, and the stored episodes that releases of Drake run again."""

from pathlib import Path

import pytest
from scaffold import Child
from support.processes import ROOT

from fleet_tools.errors import FleetToolsError
from fleet_tools.evaluation.config import EvaluationConfig
from fleet_tools.evaluation.run import evaluate_policy
from fleet_tools.parallel.workers import WorkerOptions

PATHS = {"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}"}

PROGRAM = """
import os, signal, sys
from scaffold import answering

with answering() as answer:
    print("not an answer")
    answer({"ready": True})
    for line in sys.stdin:
        if line == "die\\n":
            os.kill(os.getpid(), signal.SIGKILL)
        answer(int(line))
"""


@pytest.fixture(name="program")
def _program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


@pytest.mark.parametrize(
    ("last", "reason"), [("die", r"signal 9 \(Killed\)"), ("seven", "ValueError: .*'seven")]
)
def test_a_child_answers_until_it_fails_and_says_why(program, last, reason):
    with Child(program, variables=PATHS) as child:
        assert child.answer() == {"ready": True}
        for question in (3, 4):
            child.ask(str(question))
            assert child.answer() == question
        child.ask(last)
        with pytest.raises(FleetToolsError, match=reason):
            child.answer()


def test_an_interpreter_that_is_missing_is_named(program):
    with pytest.raises(FleetToolsError, match="no_such_python"):
        Child(program, interpreter="no_such_python")


@pytest.mark.slow
def test_stored_episodes_run_again_to_the_same_bits(tmp_path):
    pytest.importorskip("torch")
    clone = EvaluationConfig(policy="fleet-tools/bc_hammer", tool="hammer", scenes=1)
    evaluate_policy(clone, tmp_path / "clone", WorkerOptions(workers=0))
    folder = str(tmp_path / "episodes")
    making = ["make", folder, "1", str(tmp_path / "clone")]
    with Child("release_episodes.py", making, variables=PATHS) as maker:
        digest = maker.answer()
    with Child("release_episodes.py", making, variables=PATHS) as maker:
        assert maker.answer() == digest  # they are kept
    with Child("release_episodes.py", ["replay", folder], variables=PATHS) as child:
        child.answer()
        for kind in ("expert", "noisy_expert", "random", "clones"):
            child.ask(f"hammer/{kind} 0")
            assert child.answer()["identical"], kind

"""Sweep, barriers and studies: their help needs no PyTorch, and without it they say so."""

import pytest
from support.processes import run_python

WITHOUT_TORCH = """
import contextlib, io, json, sys
from fleet_tools.baselines import barriers, studies, sweep

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
RUNS = {
    sweep: ["sweep.yaml", "--output", "out"],
    barriers: ["fleet", "--output", "out"],
    studies: ["online", "--output", "out"],
}
outcomes = {}
for program, arguments in RUNS.items():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(out):
        program.main(["--help"])
    libraries = ("torch", "pydrake", "ray", "matplotlib", "sklearn")
    imported = [name for name in libraries if name in sys.modules]
    with contextlib.redirect_stderr(err):
        code = program.main(arguments)
    outcomes[program.__name__] = [out.getvalue(), code, err.getvalue()]
    outcomes.setdefault("imported", imported)
print(json.dumps(outcomes))
"""


@pytest.fixture(scope="module", name="outcomes")
def _outcomes():
    return run_python(WITHOUT_TORCH)


def test_help_imports_no_large_library(outcomes):
    assert outcomes["imported"] == []


@pytest.mark.parametrize("name", ["sweep", "barriers", "studies"])
def test_without_pytorch_help_works_and_the_rest_names_the_installation(name, outcomes):
    help_text, code, error = outcomes[f"fleet_tools.baselines.{name}"]
    assert f"usage: python -m fleet_tools.baselines.{name}" in help_text
    assert code == 2
    assert "torch is needed" in error and "pip install" in error and "[learning]" in error

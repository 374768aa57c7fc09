"""The program of experiments: its help needs no PyTorch, and without it it says so."""

import pytest
from support.processes import run_python

from fleet_tools.baselines import experiment

WITHOUT_TORCH = """
import contextlib, io, json, sys
from fleet_tools.baselines import experiment

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
out, err = io.StringIO(), io.StringIO()
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(out):
    experiment.main(["--help"])
libraries = ("torch", "pydrake", "ray", "matplotlib", "sklearn")
imported = [name for name in libraries if name in sys.modules]
with contextlib.redirect_stderr(err):
    code = experiment.main(["experiments/metaworld_rounds.yaml", "--output", "out"])
print(json.dumps([out.getvalue(), imported, code, err.getvalue()]))
"""


def test_without_pytorch_help_works_and_the_rest_names_the_installation():
    help_text, imported, code, error = run_python(WITHOUT_TORCH)
    assert "usage: python -m fleet_tools.baselines.experiment" in help_text
    assert imported == [] and code == 2
    assert "torch is needed" in error and "pip install" in error and "[learning]" in error


@pytest.mark.parametrize("arguments", [[], ["experiments/metaworld_rounds.yaml"], ["--render"]])
def test_bad_usage_is_refused(arguments):
    with pytest.raises(SystemExit, match="2"):
        experiment.main(arguments)


def test_absent_files_are_named(tmp_path, capsys):
    path = str(tmp_path / "none.yaml")
    assert experiment.main([path, "--output", str(tmp_path / "out")]) == 2
    assert "none.yaml cannot be read" in capsys.readouterr().err

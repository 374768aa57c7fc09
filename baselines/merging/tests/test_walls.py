"""What the library imports, and the one name under which it is imported."""

import json
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
ALLOWED = {"fleet_merging", "numpy", "safetensors", "scipy", "torch"}

IMPORTS = """
import json, pkgutil, sys
import fleet_merging
light = "torch" in sys.modules
import torch, scipy.optimize, safetensors.torch
before = set(sys.modules)
for module in pkgutil.walk_packages(fleet_merging.__path__, "fleet_merging."):
    __import__(module.name)
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps([light, sorted(new - set(sys.stdlib_module_names))]))
"""


def python(code, **variables):
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=variables.get("cwd")
    )
    return child.returncode, child.stdout, child.stderr


def test_the_library_imports_its_four_dependencies_alone_and_late():
    code, out, err = python(IMPORTS)
    assert code == 0, err
    light, imported = json.loads(out)
    assert not light
    assert set(imported) <= ALLOWED


def test_no_module_of_a_robot_is_named_in_the_source():
    for path in SOURCE.rglob("*.py"):
        assert "import fleet_tools" not in path.read_text(), path
        assert "from fleet_tools" not in path.read_text(), path


def test_the_library_has_one_name():
    code, _, err = python("import src.fleet_merging", cwd=str(SOURCE.parent))
    assert code == 1 and "ImportError: Import fleet_merging instead of src.fleet_merging" in err

"""What a checkout imports, an installed wheel has."""

import tomllib

from conftest import ROOT

SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_every_folder_of_modules_is_a_package_of_the_wheel():
    found = set()
    for package, folder in SETUPTOOLS["package-dir"].items():
        for module in (ROOT / folder).rglob("*.py"):
            inside = module.parent.relative_to(ROOT / folder).parts
            found.add(".".join([package, *inside]))
    assert found <= set(SETUPTOOLS["packages"])
    assert len(SETUPTOOLS["packages"]) == len(set(SETUPTOOLS["packages"]))

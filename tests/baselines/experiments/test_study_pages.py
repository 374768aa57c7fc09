"""Pages of studies: written by the program, and made again from their stored results."""

import json

import pytest

torch = pytest.importorskip("torch")

from support.study_cases import some_digits

from fleet_tools.baselines import studies as program
from fleet_tools.baselines.experiments.studies import output, sources

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("alphas", "models"), [(["1"], ["2"]), (["1", "10"], ["2"]), (["1"], ["2", "3"])]
)
def test_pages_are_made_again_from_their_results(tmp_path, alphas, models, monkeypatch):
    split = some_digits(), some_digits(50)
    monkeypatch.setattr(sources, "load", lambda name, root: split)
    page = tmp_path / "new" / "study.md"
    sizes = ["--layers", "1", "--width", "8", "--epochs", "1", "--seeds", "2"]
    methods = ["--methods", "naive_average", "common_init", "joint"]
    kinds = ["--only", "mlp", "fleets", "--alphas", *alphas, "--models", *models]
    arguments = [*sizes, *methods, *kinds, "--output", str(tmp_path / "cache"), "--quiet"]
    assert program.main(["supervised", *arguments, "--page", str(page)]) == 0
    results = json.loads(page.with_suffix(".json").read_text())
    images = ["study_curves.png", "study.png"]
    assert all(f"]({name})" in page.read_text() for name in images)
    assert "`one alone`" in page.read_text() and results["command"] in page.read_text()
    before = {path.name: path.read_bytes() for path in page.parent.iterdir()}
    assert set(before) == {"study.md", "study.json", *images}
    output.write_page(results, page)
    assert {path.name: path.read_bytes() for path in page.parent.iterdir()} == before

"""The program that merges files of models with ties, extra state and adapters."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from merging_support.foreign_networks import ZOO, A, B, adapter
from torch import nn

from fleet_merging.adapters import CONFIG_FILE
from fleet_merging.average import average
from fleet_merging.methods.lora import merged_products
from fleet_tools.baselines import merge as program
from fleet_tools.baselines.model_files import read_model, write_model


@pytest.fixture(name="factory")
def _factory(tmp_path, monkeypatch):
    """Returns the name of a function that makes a foreign model and its example."""

    def write(kind):
        (tmp_path / "factories.py").write_text(
            "from merging_support.foreign_networks import ZOO\n"
            f"def model():\n    return ZOO[{kind!r}].build(), ZOO[{kind!r}].example\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(__import__("sys").modules, "factories", raising=False)
        return "factories:model"

    return write


def run(folder, models, *more):
    paths = [folder / f"{index}.safetensors" for index in range(len(models))]
    for path, model in zip(paths, models, strict=True):
        write_model(path, model)
    output = folder / "merged.safetensors"
    code = program.main([*map(str, paths), "--output", str(output), "--quiet", *more])
    return code, output


def test_tied_weights_under_one_name_are_merged_and_stored_so(factory, tmp_path):
    """`safetensors.torch.save_model` keeps one name."""
    models = [ZOO["tied"].weights(seed) for seed in range(2)]
    files = [{name: each[name] for name in each if name != "read.weight"} for each in models]
    more = ("--method", "naive_average", "--model", factory("tied"))
    code, output = run(tmp_path, files, *more)
    assert code == 0
    stored, expected = read_model(output), average(models)
    assert stored.keys() == files[0].keys()
    for name, value in stored.items():
        torch.testing.assert_close(value, expected[name])


def test_files_without_extra_state_are_merged(factory, tmp_path):
    models = [ZOO["extra state"].weights(seed) for seed in range(2)]
    more = ("--method", "git_rebasin", "--model", factory("extra state"))
    assert run(tmp_path, models, *more)[0] == 0


def test_what_is_not_finite_is_not_stored_and_named(factory, tmp_path, capsys):
    models = [ZOO["batch norm"].weights(seed) for seed in range(3)]
    base = tmp_path / "base.safetensors"
    write_model(base, models.pop())
    more = ("--model", factory("batch norm"), "--base", str(base), "--method", "task_arithmetic")
    code, output = run(tmp_path, models, *more, "--option", "scale=1e39")
    assert code == 1 and not output.exists()
    assert "Not stored: task_arithmetic made no usable model: 0.bias" in capsys.readouterr().err
    for model in models:  # finite weights, whose outputs are not
        model["0.weight"].fill_(3e38)
    code, output = run(
        tmp_path, models, "--method", "naive_average", "--model", factory("batch norm")
    )
    assert code == 1 and not output.exists()
    assert "Conv2d 0) for the example are not finite" in capsys.readouterr().err


def test_the_program_says_once_that_nothing_can_be_aligned(tmp_path, monkeypatch, capsys):
    (tmp_path / "linear.py").write_text(
        "import torch\ndef model():\n    return torch.nn.Linear(3, 2), torch.ones(4, 3)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    models = [nn.Linear(3, 2).state_dict() for _ in range(2)]
    assert run(tmp_path, models, "--method", "git_rebasin", "--model", "linear:model")[0] == 0
    assert capsys.readouterr().err.count("fixes every axis") == 1


CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 2}


def test_the_program_merges_adapters_of_other_ranks_and_stores_their_configuration(tmp_path):
    configs = [CONFIG | {"lora_alpha": 8}, CONFIG | {"r": 3, "use_rslora": True}]
    adapters, paths = [adapter(0), adapter(1, rank=3)], []
    for index, (state, config) in enumerate(zip(adapters, configs, strict=True)):
        (tmp_path / f"{index}").mkdir()
        paths.append(tmp_path / f"{index}" / "adapter_model.safetensors")
        write_model(paths[-1], state)
        (paths[-1].parent / CONFIG_FILE).write_text(json.dumps(config))
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / "adapter_model.safetensors"
    arguments = [*map(str, paths), "--method", "lora", "--output", str(output)]
    assert program.main(arguments) == 0
    stored = json.loads((output.parent / CONFIG_FILE).read_text())
    merged = merged_products([read_model(output)], configs=stored).added["0.weight"].numpy()
    mean = (
        4 * (adapters[0][B] @ adapters[0][A]).numpy()
        + 2 / 3**0.5 * (adapters[1][B] @ adapters[1][A]).numpy()
    ) / 2
    U, S, V = np.linalg.svd(mean)
    np.testing.assert_allclose(merged, U[:, :3] * S[:3] @ V[:3], atol=1e-9)
    assert program.main(arguments) == 2  # the output is there
    (tmp_path / "out" / CONFIG_FILE).unlink()
    (tmp_path / "0" / CONFIG_FILE).unlink()
    assert program.main([*arguments, "--overwrite"]) == 2
    assert not (tmp_path / "out" / CONFIG_FILE).exists()

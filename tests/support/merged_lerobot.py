"""Run by LeRobot's Python: merges a policy of LeRobot with a copy whose units are in another order.

    python merged_lerobot.py FOLDER COPY WORK

Writes the copy. Prints how far copy, merges and policy act apart, relative to the
policy's largest number, and errors about policies that are not alike.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main(folder: Path, copy: Path, output: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    from fleet_tools.baselines import merge
    from fleet_tools.baselines.policies.lerobot_merging import lerobot_problem, write_lerobot

    torch.set_num_threads(1)
    problem = lerobot_problem([folder, folder], method="git_rebasin")
    (own, _), example, module = problem.models, problem.example, problem.module
    permutation = problem.group.random(np.random.default_rng(1))
    write_lerobot(copy, folder, problem.symmetry.apply(permutation, own))

    def answers(each: Path) -> Any:
        state = load_file(each / "model.safetensors")
        module.load_state_dict({f"policy.{name}": tensor for name, tensor in state.items()})
        with torch.no_grad():
            return module(*example)

    def merged(method: str, *more: str) -> Path:
        made = output / method
        models = [str(folder), str(copy), "--method", method, "--output", str(made)]
        assert merge.main([*models, *more]) == 0
        return made

    expected = answers(folder)
    apart = {
        name: float((answers(each) - expected).abs().max() / expected.abs().max())
        for name, each in {
            "copy": copy,
            "naive_average": merged("naive_average"),
            "task_arithmetic": merged("task_arithmetic", "--base", str(folder)),
        }.items()
    }

    refused = {}
    for name, value in (("n_action_steps", 1), ("num_inference_steps", 2), ("chunk_size", 99)):
        other = output / f"other_{name}"
        shutil.copytree(folder, other)
        config = json.loads((other / "config.json").read_text())
        if name in config:
            (other / "config.json").write_text(json.dumps({**config, name: value}))
            refused[name] = _error(folder, other)
    other = output / "other_statistics"
    shutil.copytree(folder, other)
    file = next(path for path in other.glob("policy_*.safetensors"))
    tensors = load_file(file)
    name = next(key for key, each in tensors.items() if each.is_floating_point())
    save_file({**tensors, name: tensors[name] + 1}, file)
    refused["statistics"] = _error(folder, other)
    print(json.dumps({"apart": apart, "refused": refused, "statistic": name}))


def _error(*folders: Path) -> str:
    from fleet_tools.baselines.policies.lerobot_merging import lerobot_problem

    try:
        lerobot_problem(folders)
    except Exception as error:  # of any type, whose text is compared
        return f"{type(error).__name__}: {error}"
    return "nothing"


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

"""Run by LeRobot's Python: merges a policy of LeRobot with a copy whose units are in another order.

    python merged_lerobot.py KIND WORD ...

`WORD ...` are arguments of `fleet-tools merge` that merge `outputs/one/pretrained_model`, a small
random policy, and `outputs/other/pretrained_model`, the copy, into `outputs/merged`. Prints how far
copy, merges and policy act apart, relative to the policy's largest number, and errors about
policies that are not alike.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from support.small_lerobot import SMALL

ONE, OTHER = (Path(f"outputs/{name}/pretrained_model") for name in ("one", "other"))
SIZES = {"observation.state": 20, "observation.environment_state": 9, "action": 6}


def write_policy(kind: str) -> None:
    """Writes a policy that reads states alone, as no exported dataset has them."""
    import torch
    from lerobot.configs.types import FeatureType, PolicyFeature  # pyright: ignore
    from lerobot.policies import factory  # pyright: ignore

    torch.manual_seed(0)
    types = (FeatureType.STATE, FeatureType.ENV, FeatureType.ACTION)
    features = {
        name: PolicyFeature(each, (size,))
        for each, (name, size) in zip(types, SIZES.items(), strict=True)
    }
    config = factory.make_policy_config(
        kind,
        output_features={"action": features.pop("action")},
        input_features=features,
        device="cpu",
        push_to_hub=False,
        pretrained_backbone_weights=None,
        **SMALL[kind],
    )
    stats = {
        name: {each: torch.ones(size) for each in ("mean", "std", "min", "max")}
        for name, size in SIZES.items()
    }
    processors = factory.make_pre_post_processors(config, dataset_stats=stats)
    for each in (factory.get_policy_class(kind)(config), *processors):
        each.save_pretrained(ONE)


def main(kind: str, *words: str) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    from fleet_tools.baselines import merge
    from fleet_tools.baselines.policies.lerobot_merging import lerobot_problem, write_lerobot

    torch.set_num_threads(1)
    write_policy(kind)
    problem = lerobot_problem([ONE, ONE], method="git_rebasin")
    (own, _), example, module = problem.models, problem.example, problem.module
    assert module is not None
    permutation = problem.group.random(np.random.default_rng(1))
    write_lerobot(OTHER, ONE, problem.symmetry.apply(permutation, own))

    def answers(folder: Path) -> Any:
        state = load_file(folder / "model.safetensors")
        module.load_state_dict({f"policy.{name}": tensor for name, tensor in state.items()})
        with torch.no_grad():
            return module(*example)

    assert merge.main(list(words)) == 0
    both = [str(ONE), str(OTHER), "--method"]
    assert merge.main([*both, "naive_average", "--output", "outputs/mean"]) == 0
    vectors = ["task_arithmetic", "--base", str(ONE), "--output", "outputs/vectors"]
    assert merge.main([*both, *vectors]) == 0
    expected = answers(ONE)
    folders = {"copy": OTHER} | {
        name: Path("outputs", name) for name in ("merged", "mean", "vectors")
    }
    apart = {
        name: float((answers(folder) - expected).abs().max() / expected.abs().max())
        for name, folder in folders.items()
    }

    refused = {}
    for name, value in (("n_action_steps", 1), ("num_inference_steps", 2), ("chunk_size", 99)):
        other = Path("outputs", name)
        shutil.copytree(ONE, other)
        config = json.loads((other / "config.json").read_text())
        if name in config:
            (other / "config.json").write_text(json.dumps({**config, name: value}))
            refused[name] = _error(ONE, other)
    other = Path("outputs/statistics")
    shutil.copytree(ONE, other)
    file = next(path for path in other.glob("policy_*.safetensors"))
    tensors = load_file(file)
    name = next(key for key, each in tensors.items() if each.is_floating_point())
    save_file({**tensors, name: tensors[name] + 1}, file)
    refused["statistics"] = _error(ONE, other)
    print(json.dumps({"apart": apart, "refused": refused, "statistic": name}))


def _error(*folders: Path) -> str:
    from fleet_tools.baselines.policies.lerobot_merging import lerobot_problem

    try:
        lerobot_problem(folders)
    except Exception as error:  # of any type, whose text is compared
        return f"{type(error).__name__}: {error}"
    return "nothing"


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Run by a Python that has PEFT: merges adapters of a small transformer, embeddings included.

    python merged_peft.py OUTPUT

Prints how far apart, relative to the largest logit, a model and others are: "factored", the same
change in other factors; "dense", the mean of the models with their adapters merged into them,
against `merged_products`; "stored", PEFT's model with the adapter that the program `merge` wrote,
against the nearest one of that rank; and "factors", the mean of the factors.
"""

import copy
import json
import sys
from pathlib import Path
from typing import Any

RANK = 3


def main(output: Path) -> None:
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model  # pyright: ignore
    from safetensors.torch import load_file, save_file
    from transformers import GPT2Config, GPT2LMHeadModel  # pyright: ignore

    from fleet_merging.adapters import CONFIG_FILE
    from fleet_merging.methods.lora import merged_products, with_changes
    from fleet_tools.baselines import merge

    torch.manual_seed(0)
    torch.set_num_threads(1)
    small = GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=31, n_positions=12)
    model = GPT2LMHeadModel(small).eval()
    tokens = torch.randint(0, 31, (4, 7))

    def adapter(name: str, rank: int = RANK) -> Path:
        config = LoraConfig(
            r=rank, lora_alpha=6, target_modules=["c_attn", "c_proj", "wte"], fan_in_fan_out=True
        )
        adapted = get_peft_model(copy.deepcopy(model), config)
        for key, each in adapted.named_parameters():
            if "lora_" in key:
                torch.nn.init.normal_(each, std=0.2)
        adapted.save_pretrained(output / name)
        return output / name

    def logits(of: Any) -> Any:
        with torch.no_grad():
            return of(tokens).logits

    def with_adapter(folder: Path) -> Any:
        return PeftModel.from_pretrained(copy.deepcopy(model), folder).eval()

    def apart(one: Any, other: Any) -> float:
        return float((one - other).abs().max() / one.abs().max())

    def merged(*folders: Path, name: str) -> Path:
        (output / name).mkdir()
        files = [str(each / "adapter_model.safetensors") for each in folders]
        target = str(output / name / "adapter_model.safetensors")
        assert merge.main([*files, "--method", "lora", "--output", target]) == 0
        return output / name

    one, other, larger = adapter("one"), adapter("other"), adapter("larger", RANK + 1)
    # The same adapter in other factors: B M and M^-1 A.
    state = load_file(one / "adapter_model.safetensors")
    turned = dict(state)
    for key in state:
        if "lora_A" in key or "lora_embedding_A" in key:
            partner = key.replace("_A", "_B")
            M = torch.linalg.qr(torch.randn(RANK, RANK))[0] * 2.0
            turned[partner], turned[key] = state[partner] @ M, torch.linalg.inv(M) @ state[key]
    (output / "turned").mkdir()
    save_file(
        {k: v.contiguous() for k, v in turned.items()}, output / "turned/adapter_model.safetensors"
    )
    (output / "turned" / CONFIG_FILE).write_text((one / CONFIG_FILE).read_text())

    def mean_of_models(*folders: Path) -> Any:
        found = [with_adapter(each).merge_and_unload().state_dict() for each in folders]
        made = copy.deepcopy(model)
        made.load_state_dict({k: sum(each[k] for each in found) / len(found) for k in found[0]})
        return made

    def products(*folders: Path) -> Any:
        states = [load_file(each / "adapter_model.safetensors") for each in folders]
        configs = [json.loads((each / CONFIG_FILE).read_text()) for each in folders]
        base = {k: v for k, v in model.state_dict().items() if k != "lm_head.weight"}
        made = copy.deepcopy(model)
        made.load_state_dict(
            with_changes(base, merged_products(states, configs=configs)), strict=False
        )
        made.tie_weights()
        return made

    mean = {k: (state[k] + turned[k]) / 2 for k in state}
    (output / "factors").mkdir()
    save_file(
        {k: v.contiguous() for k, v in mean.items()}, output / "factors/adapter_model.safetensors"
    )
    (output / "factors" / CONFIG_FILE).write_text((one / CONFIG_FILE).read_text())
    expected = logits(with_adapter(one))
    changes = {
        "factored": apart(
            expected, logits(with_adapter(merged(one, output / "turned", name="same")))
        ),
        "factors": apart(expected, logits(with_adapter(output / "factors"))),
        "dense": apart(logits(mean_of_models(one, other)), logits(products(one, other))),
        "ranks": apart(logits(mean_of_models(one, larger)), logits(products(one, larger))),
    }
    stored = json.loads((merged(one, larger, name="both") / CONFIG_FILE).read_text())
    print(json.dumps({"apart": changes, "rank": stored["r"]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

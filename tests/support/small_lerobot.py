"""Run by LeRobot's Python: makes a small random policy for an export, and what it would do there.

python small_lerobot.py act EXPORT FOLDER ACTIONS.npy
"""

import io
import json
import sys
from pathlib import Path
from typing import Any

SMALL: dict[str, dict[str, Any]] = {
    "act": {
        "chunk_size": 4,
        "n_action_steps": 2,
        "dim_model": 32,
        "n_heads": 2,
        "dim_feedforward": 32,
        "n_encoder_layers": 1,
        "n_vae_encoder_layers": 1,
        "latent_dim": 4,
    },
    "diffusion": {
        "horizon": 8,
        "n_action_steps": 4,
        "down_dims": (16, 32),
        "n_groups": 4,
        "num_train_timesteps": 4,
        "crop_shape": None,
        "spatial_softmax_num_keypoints": 4,
        "noise_scheduler_type": "DDIM",
    },
}


def main(kind: str, export: Path, folder: Path, actions: Path) -> None:
    import numpy as np
    import pyarrow.parquet
    import torch
    from lerobot.common.control_utils import predict_action  # pyright: ignore
    from lerobot.configs.types import FeatureType, PolicyFeature  # pyright: ignore
    from lerobot.policies import factory  # pyright: ignore
    from PIL import Image

    torch.manual_seed(0)
    features = json.loads((export / "meta/info.json").read_text())["features"]
    stats = json.loads((export / "meta/stats.json").read_text())
    state, action = features["observation.state"]["shape"], features["action"]["shape"]
    inputs = {"observation.state": PolicyFeature(FeatureType.STATE, tuple(state))}
    for name, feature in features.items():
        if name.startswith("observation.images."):
            height, width, channels = feature["shape"]
            inputs[name] = PolicyFeature(FeatureType.VISUAL, (channels, height, width))
    config = factory.make_policy_config(
        kind,
        input_features=inputs,
        output_features={"action": PolicyFeature(FeatureType.ACTION, tuple(action))},
        device="cpu",
        push_to_hub=False,
        pretrained_backbone_weights=None,
        **SMALL[kind],
    )
    policy = factory.get_policy_class(kind)(config)
    before, after = factory.make_pre_post_processors(
        config,
        dataset_stats={
            name: {key: torch.tensor(value, dtype=torch.float32) for key, value in each.items()}
            for name, each in stats.items()
        },
    )
    for each in (policy, before, after):
        each.save_pretrained(folder)

    rows = pyarrow.parquet.read_table(export / "data/chunk-000/file-000.parquet").to_pylist()
    task = json.loads((export / "meta/fleet_tools.json").read_text())["task"]["text"]
    task = next(line.partition(": ")[2] for line in task.splitlines() if "description" in line)
    policy.eval()
    policy.reset()
    torch.manual_seed(7)
    found = []
    for row in rows:
        if row["episode_index"]:
            break
        observation = {"observation.state": np.array(row["observation.state"], np.float32)}
        for name in inputs:
            if name in row and name != "observation.state":
                observation[name] = np.array(Image.open(io.BytesIO(row[name]["bytes"])))
        device = torch.device("cpu")
        done = predict_action(observation, policy, device, before, after, False, task)
        found.append(done.squeeze(0).numpy())
    np.save(actions, np.stack(found))


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))

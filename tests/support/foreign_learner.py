"""Run by another library's Python: its training program learns from an export for one pass.

    python foreign_learner.py robomimic EXPORT FOLDER PAIRS.npz
    python foreign_learner.py act EXPORT FOLDER PAIRS.npz
    python foreign_learner.py diffusion EXPORT FOLDER PAIRS.npz
    python foreign_learner.py masked_act EXPORT FOLDER PAIRS.npz

The program is the library's own, and knows nothing of this project, or for `masked_act` that of
`examples/lerobot_masked`. What its loss sees is written:
`observations`, (n, k), `actions`, (n, T, 6), and `counts`, (n, T) bool, whether an action matters.
"""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

BATCH = 1000
"""Larger than the exports here, so that an update sees all of one."""


def learn_with_robomimic(export: Path, folder: Path) -> dict[str, Any]:
    """Behaviour cloning by an MLP, with the default options but sizes."""
    import h5py
    import numpy as np
    import torch
    from robomimic.algo.bc import BC  # pyright: ignore
    from robomimic.config import config_factory  # pyright: ignore
    from robomimic.scripts.train import train  # pyright: ignore

    with h5py.File(export) as file:
        names = sorted(file["data/demo_0/obs"])  # pyright: ignore
        steps = int(file["data"].attrs["total"])  # pyright: ignore
    config: Any = config_factory("bc")
    with config.values_unlocked():
        config.train.data = str(export)
        config.train.output_dir = str(folder)
        config.train.batch_size = steps
        config.train.num_epochs = 1
        config.train.num_data_workers = 0
        config.experiment.name = "bc"
        config.experiment.epoch_every_n_steps = 1
        config.experiment.validate = False
        config.experiment.rollout.enabled = False
        config.experiment.save.enabled = False
        config.experiment.logging.log_tb = False
        config.observation.modalities.obs.low_dim = names
        config.algo.actor_layer_dims = (16,)
    seen = []
    compute = BC._compute_losses

    def compute_and_note(self: Any, predictions: Any, batch: Any) -> Any:
        seen.append(batch)
        return compute(self, predictions, batch)

    BC._compute_losses = compute_and_note
    train(config, torch.device("cpu"))
    (batch,) = seen
    observed = [batch["obs"][name].flatten(1).numpy() for name in names]
    actions = batch["actions"].numpy()[:, None]
    return {
        "observations": np.concatenate(observed, axis=1),
        "actions": actions,
        "counts": np.ones(actions.shape[:2], bool),
    }


OWN: dict[str, dict[str, Any]] = {
    "act": {"chunk_size": 5, "use_vae": False, "dropout": 0.0},
    "diffusion": {"n_obs_steps": 1, "do_mask_loss_for_padding": True, "drop_n_last_frames": 0},
}
"""Options of the policies; the page on exports names those of the latter's loss and frames."""


def learn_with_lerobot(kind: str, export: Path, folder: Path) -> dict[str, Any]:
    """A policy of LeRobot's that predicts chunks of actions."""
    if masked := kind.startswith("masked_"):
        kind = kind.removeprefix("masked_")
        runpy.run_path(str(Path(__file__).parents[2] / "examples/lerobot_masked/train.py"))
    import torch
    from lerobot.configs.default import DatasetConfig  # pyright: ignore
    from lerobot.configs.train import TrainPipelineConfig  # pyright: ignore
    from lerobot.configs.types import NormalizationMode  # pyright: ignore
    from lerobot.policies import factory  # pyright: ignore
    from lerobot.scripts.lerobot_train import train  # pyright: ignore
    from support.small_lerobot import SMALL

    stats = json.loads((export / "meta/stats.json").read_text())
    policy = factory.make_policy_config(
        kind,
        **SMALL[kind] | OWN[kind],
        device="cpu",
        push_to_hub=False,
        pretrained_backbone_weights=None,
        normalization_mapping=dict.fromkeys(
            ("VISUAL", "STATE", "ACTION"), NormalizationMode.IDENTITY
        ),
    )
    config = TrainPipelineConfig(
        dataset=DatasetConfig(repo_id="fleet_tools/hammer", root=str(export)),
        policy=policy,
        output_dir=folder,
        job_name=kind,
        steps=1,
        batch_size=BATCH,
        num_workers=0,
        save_checkpoint=False,
    )
    seen = []
    network = factory.get_policy_class(kind)
    forward = network.forward

    def forward_and_note(self: Any, batch: Any) -> Any:
        batch = dict(batch)
        answer = forward(self, dict(batch))
        if kind == "act":  # that of diffusion draws its noise
            noise = torch.randn_like(batch["action"])
            other = torch.where(batch["action_is_pad"][..., None], noise, batch["action"])
            # What is padding does not matter.
            assert torch.equal(forward(self, batch | {"action": other})[0], answer[0])
        seen.append(batch)
        return answer

    network.forward = forward_and_note
    train(config)
    (batch,) = seen
    assert masked or stats["action"]["count"] == [len(batch["action"])]
    return {
        "observations": batch["observation.state"].flatten(1).numpy(),
        "actions": batch["action"].numpy(),
        "counts": ~batch["action_is_pad"].numpy(),
    }


def main(learner: str, export: Path, folder: Path, pairs: Path) -> None:
    import numpy as np

    learned = (
        learn_with_robomimic(export, folder)
        if learner == "robomimic"
        else learn_with_lerobot(learner, export, folder)
    )
    np.savez(pairs, **learned)


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))

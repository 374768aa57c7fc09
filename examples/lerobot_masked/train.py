"""LeRobot's training program, for exports with `--whole`: its loss leaves out what nobody imitates.

    python train.py --dataset.repo_id=fleet_tools/hammer --dataset.root=data/noisy-lerobot \
        --policy.type=act --policy.push_to_hub=false

It takes the options of `lerobot-train`, in LeRobot's environment. A chunk of actions ends before
the first noise, and with the first action of a learner, as in `fleet-tools train`. Policies heed it
whose loss heeds padding: ACT, and diffusion with `--policy.do_mask_loss_for_padding=true`.
"""

from typing import Any

from lerobot.datasets import factory  # pyright: ignore[reportMissingImports]
from lerobot.scripts.lerobot_train import main  # pyright: ignore[reportMissingImports]


class MaskedDataset(factory.LeRobotDataset):
    """A dataset that marks actions not to imitate as padding."""

    def __init__(self, *args: Any, delta_timestamps: Any = None, **kwargs: Any) -> None:
        self._ahead = (delta_timestamps or {}).get("action")
        if self._ahead:
            masks = dict.fromkeys(("imitate", "executed_action"), self._ahead)
            delta_timestamps = delta_timestamps | masks
        super().__init__(*args, delta_timestamps=delta_timestamps, **kwargs)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Returns a step, with the chunk of actions from there on."""
        item = super().__getitem__(index)
        if self._ahead:
            now = self._ahead.index(0)
            corrected = (item["action"] != item["executed_action"]).any(-1).int()
            before = corrected.cumsum(0) - corrected
            imitate = item["imitate"] & item["imitate"][now] & (before == before[now])
            imitate[now:] = imitate[now:].cumprod(0).bool()
            item["action_is_pad"] = item["action_is_pad"] | ~imitate
        return item


factory.LeRobotDataset = MaskedDataset

if __name__ == "__main__":
    main()

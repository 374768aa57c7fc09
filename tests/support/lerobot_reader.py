"""Run by LeRobot's Python: reads an export as its learners do, and computes its statistics.

    python lerobot_reader.py EXPORT READ.npz

`READ.npz` has each column of all steps; `chunk`, (n, 3, 6), the actions from each step on, and
`chunk_is_pad`; `task`, the texts; `stats/<column>/<kind>`, what LeRobot computes from the columns.
"""

import sys
from pathlib import Path

CHUNK = 3


def main(export: Path, output: Path) -> None:
    import numpy as np
    from lerobot.datasets.compute_stats import get_feature_stats  # pyright: ignore
    from lerobot.datasets.lerobot_dataset import LeRobotDataset  # pyright: ignore

    loaded = LeRobotDataset("fleet_tools/export", root=export)
    deltas = {"action": [k / loaded.fps for k in range(CHUNK)]}
    chunks = LeRobotDataset("fleet_tools/export", root=export, delta_timestamps=deltas)
    items = [loaded[k] for k in range(len(loaded))]
    columns = {name: np.stack([np.asarray(each[name]) for each in items]) for name in items[0]}
    read = dict(columns)
    for name, rows in columns.items():
        if name in loaded.meta.stats:
            image = name in loaded.meta.image_keys
            stats = get_feature_stats(rows, (0, 2, 3) if image else 0, keepdims=rows.ndim == 1)
            read |= {f"stats/{name}/{kind}": value for kind, value in stats.items()}
    ahead = [chunks[k] for k in range(len(chunks))]
    read["chunk"] = np.stack([each["action"] for each in ahead])
    read["chunk_is_pad"] = np.stack([each["action_is_pad"] for each in ahead])
    np.savez(output, **read)  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

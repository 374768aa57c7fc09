"""How large policies are, and how long they take to act: `python benchmarks/policies.py`.

Every policy of `fleet_tools.baselines.policies.config.POLICIES`, as it is by default, with new
weights, on one thread: processor time of `act`, the median over an episode's steps, once its memory
is full. Observations have the layout of the hammer's; with pictures, of all its cameras.
"""

import argparse
import json
import statistics
import time

import numpy as np
import torch

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.config import POLICIES
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.dataset.header import describe_action, describe_observation
from fleet_tools.registration import make_environment
from fleet_tools.utils.machine import machine_name

STEPS = 60


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(POLICIES), choices=list(POLICIES))
    parser.add_argument("--camera-size", nargs=2, type=int, default=(320, 240))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    machine = f"{machine_name()}, PyTorch {torch.__version__}"
    report = print if not arguments.json else lambda *_, **__: None
    report(f"On one thread of {machine}:")
    figures = {"machine": machine, "policies": []}
    for name in arguments.only:
        took = measure(name, tuple(arguments.camera_size))
        figures["policies"].append({"policy": name, **took})
        report(
            f"{name:>20}: {took['parameters'] / 1e6:6.2f} M parameters, "
            f"act {took['act_ms']:6.2f} ms",
            flush=True,
        )
    if arguments.json:
        print(json.dumps(figures))


def measure(name: str, camera_size: tuple[int, int]) -> dict[str, float]:
    """Returns a policy's number of parameters, and milliseconds of its median `act`."""
    config = POLICIES[name]
    vision = {}
    if config.clouds is not None:
        vision = {"obs_mode": "point_cloud"}
    if config.pictures is not None:
        vision = {"obs_mode": "rgbd", "channels": ("rgb",), "camera_size": camera_size}
    env = make_environment(task="hammer", **vision)
    blueprint = Blueprint.of(config, describe_observation(env), describe_action(env))
    env.close()
    network = blueprint.create()
    policy = NetworkPolicy(Checkpoint(blueprint, network.state_dict()))
    generator = np.random.default_rng(0)
    observation = {
        name: generator.integers(0, 256, array.shape, np.uint8)
        if array.dtype == "uint8"
        else generator.normal(size=array.shape).astype(np.float32)
        for name, array in blueprint.observation.items()
    }
    took = []
    for _ in range(STEPS):
        begun = time.process_time()
        policy.act(observation)
        took.append(time.process_time() - begun)
    return {
        "parameters": sum(tensor.numel() for tensor in network.parameters()),
        "act_ms": 1e3 * statistics.median(took[STEPS // 2 :]),
    }


if __name__ == "__main__":
    main()

"""Attaches a keypoint detector to a policy: `python -m fleet_tools.baselines.attach_detector ...`.

The result is a policy on point clouds, as one checkpoint.
"""

import sys
from pathlib import Path

from fleet_tools.utils import cli


class AttachOptions(cli.Options):
    """Attaches a keypoint detector to a policy that learned from keypoints.

    Exit codes:
    0: the policy is stored.
    1: the disk failed.
    2: it cannot begin.
    """

    policy: Path
    """Checkpoint of a policy that learned from `obs_mode=multitask_state`."""
    detector: Path
    """Checkpoint of a detector from `python -m fleet_tools.baselines.train --keypoints`."""
    output: Path
    """File of the policy that acts on clouds."""
    overwrite: bool = False
    """Replace an existing output."""


def _attach(options: AttachOptions) -> int:
    from fleet_tools.baselines.model_files import require_output
    from fleet_tools.baselines.policies.checkpoint import load_checkpoint, save_checkpoint
    from fleet_tools.baselines.policies.keypoint_detector import attached

    require_output(options.output, [options.policy, options.detector], options.overwrite)
    policy = attached(load_checkpoint(options.policy), load_checkpoint(options.detector))
    try:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        save_checkpoint(options.output, policy)
    except OSError as error:
        return cli.stopped(error)
    read = ", ".join(policy.blueprint.observation)
    options.report({"output": str(options.output)}, lambda: f"{options.output} reads {read}.")
    return cli.OK


PROGRAM = cli.Program("baselines.attach_detector", cli.Command(AttachOptions, _attach))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())

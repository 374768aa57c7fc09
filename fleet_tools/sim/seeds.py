"""Disjoint ranges of scene seeds, so that no policy is evaluated on scenes it was trained on.

Seeds that are stored lie below 2^53, so that every JSON reader keeps them.
"""

TRAINING = range(2**52)
"""Seeds of datasets (`fleet_tools.dataset.attempts.scene_seed`) and of `env.reset()`."""
EVALUATION = range(2**52, 2**53)
"""Seeds of evaluation protocols."""
VALIDATION = range(2**53, 2**54)
"""Seeds of rollouts during training (`fleet_tools.baselines.training.rollouts`)."""

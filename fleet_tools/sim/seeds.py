"""Seeds of scenes: those to learn from and those to be judged by never meet.

Those that are stored are below 2^53, so that every JSON reader keeps them.
"""

TRAINING = range(2**52)
"""Of data sets (`collecting.attempts.scene_seed`), and of what environments draw themselves."""
EVALUATION = range(2**52, 2**53)
"""Of protocols (`fleet_tools.evaluation.protocol`), and of nothing else."""
VALIDATION = range(2**53, 2**54)
"""Of rollouts while a policy is trained (`fleet_tools.baselines.training.rollouts`)."""

"""Seeds of scenes: those to learn from and those to be judged by never meet.

All are below 2^53, so that every JSON reader keeps them.
"""

TRAINING = range(2**52)
"""Of data sets (`fleet_tools.attempts.scene_seed`), and of what environments draw themselves."""
EVALUATION = range(2**52, 2**53)
"""Of protocols (`fleet_tools.evaluation.protocol`), and of nothing else."""

"""Linear quadratic control, and the merging of linear controllers under the group GL(n).

The paper's linear policies (appendix "Linear Policy Merging", `appendix:linear`), with NumPy and
SciPy alone:

- `systems`: plants, controllers theta = (A, B, C) and the action of GL(n) on them;
- `lqg`: optimal controllers from Riccati equations, the cost J and its gradient;
- `rollouts`: simulated episodes;
- `learning`: controllers from demonstrations, by least squares and by gradient;
- `alignment`, `permutations`: transforms that bring one controller near to another;
- `merging`: one controller from many.

Docstrings cite the paper's equation labels; "Slip:" marks errors in the paper.
"""

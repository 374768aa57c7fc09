"""How permutations are found: assignment problems, and gradient descent on soft permutations."""

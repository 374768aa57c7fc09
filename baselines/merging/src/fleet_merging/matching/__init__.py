"""Search for permutations: assignment problems, and gradient descent on soft permutations."""

"""Effects of operations on the axes of tensors, from which `symmetry.derive` derives tables."""

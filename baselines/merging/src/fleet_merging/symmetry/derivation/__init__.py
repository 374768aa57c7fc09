"""What operations say of the axes of tensors, by which `symmetry.derive` derives tables."""

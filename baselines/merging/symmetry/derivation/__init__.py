"""Derivation of tables of axes from the operations that `torch.export` records."""

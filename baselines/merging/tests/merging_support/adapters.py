"""Adapters of low rank in PEFT's layout."""

import torch

A, B = "base_model.model.0.lora_A.weight", "base_model.model.0.lora_B.weight"


def adapter(seed: int, rank: int = 2, inputs: int = 6, outputs: int = 5) -> dict[str, torch.Tensor]:
    """Returns an adapter of one layer, by the names `A` and `B`."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {A: (rank, inputs), B: (outputs, rank)}
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }

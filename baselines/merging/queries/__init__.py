"""What merging asks a data holder, as messages that carry models, losses and gradients."""

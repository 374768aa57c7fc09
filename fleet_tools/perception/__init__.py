"""What cameras see: renderer, pinhole cameras, segmentation, point clouds."""

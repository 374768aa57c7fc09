"""Axes of losses."""

import itertools

import pytest
from matplotlib.figure import Figure

from fleet_tools.baselines.experiments.plot_scales import set_scale


@pytest.mark.parametrize("highest", [0.02, 0.9, 9.0, 11.0, 400.0, 1e6])
def test_labels_of_losses_do_not_overlap(highest):
    figure = Figure(figsize=(4, 3))
    axes = figure.add_subplot()
    axes.plot([0.01, highest], [0, 1])
    set_scale(axes, "loss", horizontal=True)
    figure.canvas.draw()
    low, high = axes.get_xlim()
    ticks = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
    shown = [label.get_window_extent() for tick, label in ticks if low <= tick <= high]
    assert len(shown) >= 2
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(shown))

"""Fleets that learn at home: every robot trains on data of its own, and only weights travel.

    config      what is to be done, as a YAML file says it
    plan        who has which episodes, and what all robots share
    messages    all that crosses between the driver and a robot
    robot       who has data: trains, and answers questions of alignment
    hosts       where robots run: in this process, or each in a Ray actor
    remembered  what robots learn before their first merge, kept for fleets that begin alike
    rounds      one round: train apart, merge, judge
    run         all rounds, on from the last that is stored
    record      the output folder
    summary     what came of it, in numbers and in a few lines
    sweeps/     many of them, as one thing varies
    barriers/   what lies between the policies of one
    scales      how losses and successes look in pictures

Why nothing but weights has to travel: the scaling of inputs must be one for all whose weights are
averaged, so the driver measures it on episodes of its own, held out of every robot's data, and
sends it out with the blueprint. Of a robot it learns weights, how many steps these were learned
from (their share in averages), and one mean loss; with Fleet-Merge, also losses and gradients at
models that it asks about (`merging.wire`).

A robot is a function of what it is told: it keeps no optimizer's moments from one round to the
next, as in FedAvg (McMahan et al. 2017), and draws the order of its data from its seed and the
epoch. So who dies can be started anew, and a run that goes on ends at the same bits.
"""

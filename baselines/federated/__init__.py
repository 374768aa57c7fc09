"""Federated learning: robots train on data of their own, and only weights travel.

    config       what is to be done, as a YAML file says it
    plan         which robot has which episodes, and what all robots share
    messages     all that crosses between the driver and a robot
    robot        a data holder that also trains
    transport    where robots run: in this process, or each in a Ray actor
    reply_cache  the replies to the first round, shared by fleets that begin alike
    rounds       one round: train, merge, evaluate
    run          all rounds, resumed from the last that is stored
    record       the output folder
    summary      the report, and its text

Inputs must be scaled alike wherever weights are averaged, so the driver measures the scaling on
episodes of its own, held out of every robot's data, and sends it with the blueprint. From a robot
it receives weights, the number of steps that they were trained on (the averaging weight), and one
mean loss; with Fleet-Merge, also losses and gradients of models that it asks about
(`merging.queries.wire`).

A robot is a function of what it is told: it keeps no optimizer moments from one round to the next,
as in FedAvg (McMahan et al. 2017), and draws the order of its data from its seed and the epoch. So
a robot that died can be started again, and a resumed run ends at the same bits.
"""

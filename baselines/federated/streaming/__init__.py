"""Fleets of any size: robots align at home, and the server adds up their changes as they come.

config         what a YAML file says of it
alignment      a robot permutes its policy so that it is near a reference
home           a robot's reply: its change, clipped, rounded and masked
vectors        weights as one vector
sums           sums of integers, in which order does not matter
messages       requests for changes, and changes
mask_messages  public keys, and what robots reveal when a round is closed
exchange       messages to robots until enough have answered
masked         a sum of which no single change is seen
partial        an exchange in progress, as a file
rounds         one round
"""

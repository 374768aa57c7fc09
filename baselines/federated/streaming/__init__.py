"""Fleets of any size: robots align at home, and the server adds up their changes as they come.

config         what a YAML file says of it
alignment      a robot permutes its policy so that it is near a reference
home           a robot's reply: its change, rounded
vectors        weights as one vector
sums           sums of integers, in which order does not matter
quantization   numbers as integers of a few bits, and as bytes
messages       requests for changes, and changes
exchange       messages to robots until enough have answered
partial        an exchange in progress, as a file
rounds         one round
"""

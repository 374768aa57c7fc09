"""The methods: each a function from a `fleet.Fleet` to a `fleet.Merged` that changes nothing."""

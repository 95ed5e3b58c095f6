"""The user's own types in a graph: the context of a run, and channels of the state."""

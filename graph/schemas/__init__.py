"""What a user adds to a graph by types of their own: the context of a run, and channels of the state."""

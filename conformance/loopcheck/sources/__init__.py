"""Public tasks with checkers of their own: where they come from, and how they are read."""

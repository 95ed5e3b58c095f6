"""`signoff mcp`: threads as tools of other agents, by the Model Context Protocol."""

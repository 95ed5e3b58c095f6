"""`signoff mcp`: threads as tools for other agents, through the Model Context Protocol."""

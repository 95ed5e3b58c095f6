"""`signoff acp`: threads in an editor, through the Agent Client Protocol."""

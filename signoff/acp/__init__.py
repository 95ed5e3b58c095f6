"""`signoff acp`: threads in an editor, by the Agent Client Protocol."""

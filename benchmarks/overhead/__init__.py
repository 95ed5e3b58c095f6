"""What a turn costs beside its model and its tool, for Signoff and for others, in one run."""

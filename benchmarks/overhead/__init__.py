"""What a turn costs apart from its model and tool, for Signoff and other frameworks, measured together."""

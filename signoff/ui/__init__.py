"""The application: a terminal app with the conversation, the machine, and a terminal pane."""

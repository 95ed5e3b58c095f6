"""Statistics of the recorded outcomes: how tasks end, how long they take, which reminders help."""

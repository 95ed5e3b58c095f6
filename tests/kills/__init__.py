"""Real processes, killed with SIGKILL: whoever goes on loses nothing and repeats nothing."""

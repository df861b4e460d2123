"""The corpus' runner: headers, launchers, the world of a run, one attempt, what proves an escape, and the tables."""

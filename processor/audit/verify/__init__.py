"""Hold a record against what was recomputed from it, and say what differs."""

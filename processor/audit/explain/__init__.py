"""One decision: who was asked, how likely each answer was and why, and what became of it."""

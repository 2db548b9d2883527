"""Recordings, replay and what follows from them: audit, explanation, what-if, report."""

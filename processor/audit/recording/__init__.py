"""Recordings made and played: which ranges, into which files, and back onto topics."""

"""The report: one file a compliance officer can hand over, and the same figures for machines."""

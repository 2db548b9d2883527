"""Compare a record with what was recomputed from it, and report the differences.

audit          all partitions, and one verdict
partition      one partition: every batch, and the end of the journal
decisions      the published decisions, and what was drawn according to them
side_outputs   dead letters and alerts
result         options, the result of a partition, and how much of it was verified
audit_output   what ``gforce audit`` prints
"""

"""What the service wants of the world, and its errors. ``adapters`` provides it.

log         the commit log: a group member that reads, a producer that commits, a reader
store       the state of partitions: a versioned view that can be reconstructed from the log
codec       other formats than JSON, at the edge
processes   which processes run, by the name each has
"""

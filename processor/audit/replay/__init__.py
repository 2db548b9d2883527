"""Recompute a partition from its inputs and its journal alone.

replay              batch by batch; several partitions interleaved, and in several processes
input_cursor        inputs by the ranges of the journal, and what was changed in them
memory_state        what the store would hold
journal_chain       the journal's hash chain
recorded_settings   settings as the journal has them, and seeds
changelog           the changelog, and a snapshot in it to start from
output_reader       what was published
findings            what can be wrong
"""

"""Recompute a partition from its inputs and its journal alone.

replay, abreast             batch by batch, several partitions side by side
mirror                      what the store would hold
tapes, restoring            inputs by the ranges of the journal, and what was changed in them
chain, rules                the journal's hash chain; settings and seeds
recorded_draws              draws, where the seed is not known
shelves                     what was published
snapshots                   the changelog, and a place to start from
findings                    what can be wrong
pool                        pieces of work on several cores
"""

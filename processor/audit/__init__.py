"""Recordings, replay and what follows from them.

sources     where to read from: a recording, plain ``kcat -J`` files, or a running cluster
recording   ``gforce record`` and ``gforce play``
replay      recompute a partition from its inputs and its journal
verify      ``gforce audit``: hold the record against what was recomputed
explain     ``gforce explain``: one decision, taken apart
whatif      ``gforce whatif``: the same stream under other settings
report      ``gforce report``: one file to hand over
"""

"""Recordings, replay and what follows from them.

sources          where to read from: a recording, plain ``kcat -J`` files, or a running cluster
recording        ``gforce record`` and ``gforce play``
replay           recompute a partition from its inputs and its journal
verify           ``gforce audit``: compare the record with what was recomputed
explain          ``gforce explain``: why one decision was taken, and what became of it
whatif           ``gforce whatif``: the same stream under other settings
report           ``gforce report``: one file to hand over
audit_commands   the commands audit, explain, whatif and report
command_inputs   what these commands share: options, the opened source, progress bars
"""

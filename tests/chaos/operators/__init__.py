"""``python -m tests.chaos.operators``: what operators, other programs and servers do wrong, one named scenario each.

    stream      the producer of the test, its own read_committed reader, and the books of both
    stage       one scenario's topics, processors and what an operator does and sees; with it supervisor,
                group_offsets and checks
    table       one row per scenario
    control     nothing wrong: a row that must pass in any version
    quarantine  a partition that cannot be recovered
    records     records that are too large, and records that are not ours
    cost        very many expiries, a tenant at the limits
    state       entries, fields and slabs deleted in Redis
    offsets     offsets that lost their tail, were moved, inputs created anew
    store       Redis demoted, slow, stopped, with another policy
    instances   two processes with one name

Everything is seen from the outside: records on topics, pages over HTTP, commands and their exit codes, logs.
"""

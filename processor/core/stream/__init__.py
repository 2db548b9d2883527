"""One partition of the stream: records in, decisions and writes out.

step                                 a batch, in the order that makes it exact
batch, events, reading, remembering  records to events, and why one is refused
deciding, decision_writer            requests to decisions
labelling, joining                   labels to what is learnt
draft                                what a batch changes, until it is done
partition, tenant, numbering         what is in memory
entry, pending_rows, writes          what is in the store
journal, identity                    what is written down, and which state this is
partitioning                         which partition a key belongs to
stacking                             tables of many tenants as one
delays, waits                        how long labels take
"""

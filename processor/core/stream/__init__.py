"""One partition of the stream: records in, decisions and writes out.

step                               a batch, in the order that makes it exact
decode, remembering                records to events, and why one is refused
decide, encode                     requests to decisions
labelling, join                    labels to what is learnt
draft                              what a batch changes, until it is done
partition, tenant, names           what is in memory
entries, entry_columns, writes     what is in the store
journal, identity                  what is written down, and which state this is
partitioner                        which partition a key belongs to
stacking                           tables of many tenants as one
delays, pending_ages               how long labels take
"""

"""The loop: read, step, commit, apply to the store.

worker                      the loop itself
assignment, assigned        the partitions of this process, from assignment to revocation
buffers, buffer             what is read and not yet committed
batches, publish            a batch on its way into a transaction
transaction, budget, cost   one Kafka transaction: how it can fail, what it has time for
committed, recovery         a partition's state brought to exactly what was committed
snapshot                    copies of a state on their way into the changelog
breaker, poison             what a producer may send without stopping a partition, and what not
executors, latencies        calls beside the loop; how long requests waited
topics                      the names of the topics
"""

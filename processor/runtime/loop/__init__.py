"""The processor: read, step, commit, tell the store.

worker                     the loop
intake, held, owned        what is read and not yet committed, of the partitions owned
batches, publish           a batch on its way
transactions               one Kafka transaction, and the three ways in which it can fail
recovery, snapshots        a partition's state brought to exactly what was committed
breaker, faults            what a producer may send without stopping a partition, and what not
aside, latencies           calls beside the loop; how long requests waited
"""

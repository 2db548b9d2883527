"""Record topics into files, and send a recording to topics again.

plan              which offsets to record, given the options, the cluster and what the folder already holds
record            read the topics and write the files
play              send the records of a recording to other topics
record_commands   ``gforce record`` and ``gforce play``
"""

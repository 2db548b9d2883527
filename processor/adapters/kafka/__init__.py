"""The log on Apache Kafka.

input, assigned_input,
runs, membership          read both inputs as a member of the group
output                    the transactional producer
reader                    read any partition without a group
sender                    send without a transaction, for tools
admin, group              topics and the group's offsets
settings, errors          librdkafka's properties, and what its errors ask of the caller
"""

"""``gforce run``: a processor put together from its configuration, and run as a process.

assembly       the worker on Kafka and Redis
process        the loop, its signals, its log and its port
registration   one process for each ``instance``
store_watch    whether the store could silently drop state
stopping       SIGTERM, Ctrl-C, a closed terminal
run_command    the command
"""

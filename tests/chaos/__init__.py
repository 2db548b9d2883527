"""The whole thing for real: processors as processes, a Kafka broker and Redis, killed under load.

``python -m tests.chaos`` kills, ``tests.chaos.rolling`` restarts in turn, ``tests.chaos.idle`` lets offsets expire.
"""

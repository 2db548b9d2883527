"""Thin shells around the world: ``log`` and ``store`` say what the processor needs of Kafka and Redis; ``kafka``,
``redis`` and ``memory`` give it. ``codec`` and ``avro`` are what events look like on the wire.
"""

"""What makes the core a service.

loop         read both inputs, step, commit one Kafka transaction, tell the store
config       one TOML file, overridden by the environment
telemetry    what a running processor says about itself: metrics, health, figures, logs
operations   what an operator does, and the commands for it
assembly, service, embedded, commands
             a processor put together, as a service, without Kafka, and as ``gforce run``
"""

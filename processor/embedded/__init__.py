"""The same processor without Kafka: the log in memory and a Valkey server of its own.

embedded                   the processor
lines                      JSON lines from a file or a pipe through it
line_files, line_records   where lines are read from and written to; what a line says
"""

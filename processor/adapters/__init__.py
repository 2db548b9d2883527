"""The ports on real systems: ``kafka`` and ``redis``; ``memory`` for the embedded mode and the simulation; ``avro``."""

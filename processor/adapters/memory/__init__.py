"""The log and the store in memory: for the embedded mode, and for the simulation, which needs every fault."""

"""Real servers for the tests: brokers and stores started as processes or containers."""

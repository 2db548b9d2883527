"""How fast the processor is, beside the limit and its peers, on a real Kafka broker and a real Redis."""

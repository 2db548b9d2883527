"""A drift on a live stream, seen by the alerts: in Prometheus, on the topic, and gone after the recovery."""

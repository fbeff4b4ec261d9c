"""Authentication, limits, logs and metrics of requests."""

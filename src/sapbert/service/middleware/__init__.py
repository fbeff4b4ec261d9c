"""Authentication, limits, logs and metrics, applied before the application."""

"""Self-alignment training (SapBERT)."""

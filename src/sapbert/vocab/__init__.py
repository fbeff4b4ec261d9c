"""READ: any biomedical vocabulary becomes a vocabulary artifact."""

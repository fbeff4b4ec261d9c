"""The Reconciliation Service API, as OpenRefine uses it."""

"""What only reproduces the SapBERT paper: its tables, figures and hyperparameter sweeps."""

"""TRAIN: self-alignment of an encoder on pairs."""

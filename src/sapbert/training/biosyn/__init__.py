"""BioSyn training from labelled mentions."""

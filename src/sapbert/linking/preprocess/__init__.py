"""Preprocessing of mentions: abbreviations and composite mentions."""

"""Context of mentions: negated, possible, hypothetical, historical, or about the family; sections."""

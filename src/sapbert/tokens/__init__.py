"""Names to tokens: tokenizers, batches of token ids, and pooling of token vectors."""

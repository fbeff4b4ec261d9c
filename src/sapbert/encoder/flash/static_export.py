"""Export a flash encoder as a static embedding, which sentence-transformers and model2vec open.

Their format has one vector per token, and the vector of a text is the normalized mean of its tokens. Rows of
a word, of its n-grams and of its sound add up to one vector per word, so the vectors of names with known
words are those of the flash encoder. Two limits follow: pairs of words have no place in the format, so an
encoder with such a table is refused, and words outside the given names are ignored instead of being encoded
by their n-grams.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import NFD, NFKC, Lowercase, Sequence, StripAccents
from tokenizers.pre_tokenizers import Split

from sapbert.artifacts import Manifest, create
from sapbert.encoder.flash.encoder import FlashEncoder
from sapbert.encoder.flash.features import FeatureKind, words
from sapbert.errors import ConfigError

KIND = "static embedding"
_UNKNOWN = "[UNK]"
_WORD = r"\p{Han}|\p{Hiragana}+|\p{Katakana}+|[[\p{L}\p{M}]&&[^\p{Han}\p{Hiragana}\p{Katakana}]]+|\p{N}+"
_WORDS_AT_ONCE = 4_096
_MODULES = {"StaticEmbedding": ".", "Normalize": "1_Normalize"}
"""Modules of sentence-transformers → their folder."""


def export_static(
    encoder: FlashEncoder, names: Iterable[list[str]], target: Path, *, overwrite: bool = False
) -> Manifest:
    """Write a static embedding of all words of `names`, given in blocks."""
    if any(table.kind is FeatureKind.PAIR for table in encoder.features.tables):
        raise ConfigError(
            "a static embedding has no pairs of words; train an encoder without them, "
            "such as `sapbert flash --feature word=17 --feature characters-4=17`"
        )
    known = sorted(set().union(*map(words, names)))
    tokenizer, vectors = _tokenizer(known), _word_vectors(encoder, known)
    with create(target, overwrite=overwrite) as draft:
        tokenizer.save(str(draft.path / "tokenizer.json"))
        save_file({"embeddings": vectors}, draft.path / "model.safetensors")
        modules = [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
            for number, (name, path) in enumerate(_MODULES.items())
        ]
        (draft.path / "modules.json").write_text(json.dumps(modules, indent=2))
        config = {"model_type": "model2vec", "normalize": True, "hidden_dim": encoder.dimension}
        (draft.path / "config.json").write_text(json.dumps(config, indent=2))
        return draft.seal(
            KIND,
            settings={"features": encoder.features.to_json()},
            inputs={"encoder": {"fingerprint": encoder.fingerprint}},
            counts={"words": len(known)},
        )


def _tokenizer(known: list[str]) -> Tokenizer:
    normalizer = Sequence([NFKC(), Lowercase(), NFD(), StripAccents(), NFKC()])
    numbers = {_UNKNOWN: 0}
    for number, word in enumerate(known, 1):
        numbers.setdefault(normalizer.normalize_str(word), number)
    tokenizer = Tokenizer(WordLevel(numbers, unk_token=_UNKNOWN))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = Split(Regex(_WORD), behavior="removed", invert=True)
    return tokenizer


def _word_vectors(encoder: FlashEncoder, known: list[str]) -> NDArray[np.float32]:
    """Return the vector of each word before normalization, after one of zeros for unknown words."""
    vectors = np.zeros((1 + len(known), encoder.dimension), np.float32)
    for start in range(0, len(known), _WORDS_AT_ONCE):
        vectors[1 + start : 1 + start + _WORDS_AT_ONCE] = encoder.sums(known[start : start + _WORDS_AT_ONCE])
    return vectors

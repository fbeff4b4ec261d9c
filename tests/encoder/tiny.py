"""Random encoders of each model family, small enough for tests: two layers, 32 dimensions, no download.

    folder = tiny_bert(tmp_path / "bert", words=["heart", "attack", "##s"])

Each is saved as a Hugging Face folder with a tokenizer of its family whose vocabulary has the given words.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizer,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    MPNetTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    RobertaTokenizer,
    XLMRobertaConfig,
    XLMRobertaModel,
    XLMRobertaTokenizer,
)

from sapbert.encoder.model_folder import quiet_transformers, without_pooler

WIDTH = 32
POSITIONS = 100
# fmt: off
WORDS = (
    "heart", "attack", "myocardial", "infarction", "fever", "cold", "common", "influenza", "migraine",
    "headache", "type", "diabetes", "mellitus", "chronic", "acute", "renal", "failure", "of", "the",
    "disease", "syndrome", "arthr", "##itis", "##s", "##algia", "neur", "##opathy", "a", "b", "c", "d", "e",
)
# fmt: on
_SHAPE: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": POSITIONS,
}


def tiny_bert(folder: Path, *, seed: int = 0, words: Iterable[str] = WORDS) -> Path:
    """Save a BERT whose WordPiece tokenizer knows `words`; pieces inside a word begin with `##`."""
    vocab = _numbered(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    config = BertConfig(vocab_size=len(vocab), **_SHAPE)
    return _save(folder, BertModel, config, BertTokenizer(vocab=vocab), seed)


def tiny_roberta(folder: Path, *, seed: int = 0, words: Iterable[str] = WORDS) -> Path:
    """Save a RoBERTa that reads single bytes; positions start after the padding's, as in the real one."""
    del words
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = _numbered(["<s>", "<pad>", "</s>", "<unk>", *letters, "<mask>"])
    config = RobertaConfig(vocab_size=len(vocab), **_SHAPE)
    return _save(folder, RobertaModel, config, RobertaTokenizer(vocab=vocab, merges=[]), seed)


def tiny_mpnet(folder: Path, *, seed: int = 0, words: Iterable[str] = WORDS) -> Path:
    """Save an MPNet: WordPiece with the special tokens of RoBERTa."""
    vocab = _numbered(["<s>", "<pad>", "</s>", "[UNK]", *words, "<mask>"])
    config = MPNetConfig(vocab_size=len(vocab), **_SHAPE)
    return _save(folder, MPNetModel, config, MPNetTokenizer(vocab=vocab), seed)


def tiny_xlmr(folder: Path, *, seed: int = 0, words: Iterable[str] = WORDS) -> Path:
    """Save an XLM-RoBERTa with a Unigram tokenizer, as SentencePiece makes them."""
    pieces = [word.removeprefix("##") if word.startswith("##") else f"\u2581{word}" for word in words]
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    vocab = [(piece, -float(rank)) for rank, piece in enumerate([*special, *pieces, "<mask>"])]
    config = XLMRobertaConfig(vocab_size=len(vocab), **_SHAPE)
    return _save(folder, XLMRobertaModel, config, XLMRobertaTokenizer(vocab=vocab), seed)


def tiny_modernbert(folder: Path, *, seed: int = 0, words: Iterable[str] = WORDS) -> Path:
    """Save a ModernBERT: rotary positions, and attention of the second layer within 16 tokens."""
    vocab = _numbered(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    backend = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])]
    template = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    backend.post_processor = template
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    tokens: dict[str, Any] = {
        "pad_token_id": 0,
        "cls_token_id": 2,
        "bos_token_id": 2,
        "sep_token_id": 3,
        "eos_token_id": 3,
    }
    config = ModernBertConfig(vocab_size=len(vocab), local_attention=16, **tokens, **_SHAPE)
    return _save(folder, ModernBertModel, config, tokenizer, seed)


FAMILIES: dict[str, Callable[[Path], Path]] = {
    "bert": tiny_bert,
    "roberta": tiny_roberta,
    "mpnet": tiny_mpnet,
    "xlm-roberta": tiny_xlmr,
    "modernbert": tiny_modernbert,
}


def truncating_left(model: Path, folder: Path) -> Path:
    """Copy a saved encoder whose tokenizer then drops the first tokens of a long name instead of the last."""
    shutil.copytree(model, folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "truncation_side": "left"}))
    return folder


def _numbered(tokens: list[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def _save(
    folder: Path,
    kind: Callable[..., PreTrainedModel],
    config: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind(config, **without_pooler(kind))
        for parameter in model.parameters():
            if parameter.ndim > 1:
                # With the usual initialization all names have nearly the same vector.
                torch.nn.init.normal_(parameter, std=0.5)
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder

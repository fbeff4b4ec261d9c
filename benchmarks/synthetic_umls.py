"""Generate a synthetic UMLS release of any size: MRCONSO, MRREL, MRSTY, MRDEF and MRRANK in the real layout.

UMLS cannot be redistributed, so speed is measured with synthetic names. The properties that determine the
cost of reading are close to 2020AA: 128 bytes and about 38 characters of name per row, 3.5 rows per concept
with a long tail (a few concepts have hundreds), 70 % of rows in English, one row in fifteen suppressed, names
repeated by several sources, a tradename link for one concept in twenty-five, a parent for each concept and a
definition for one in fifteen.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

ROWS_PER_CONCEPT = 15_000_000 / 4_200_000
LANGUAGES = np.array(["ENG", "SPA", "FRE", "JPN", "GER", "POR", "DUT", "RUS"])
LANGUAGE_SHARES = np.array([0.70, 0.12, 0.04, 0.04, 0.03, 0.03, 0.02, 0.02])
SOURCES = np.array(
    [
        "SNOMEDCT_US",
        "MTH",
        "MSH",
        "NCI",
        "RXNORM",
        "LNC",
        "MDR",
        "NCBITAXON",
        "ICD10CM",
        "OMIM",
        "HPO",
        "GO",
        "CHV",
        "MMSL",
        "VANDF",
    ]
)
TERM_TYPES = np.array(["PT", "SY", "ET", "PN", "FN", "AB", "BN", "IN"])
SUPPRESSED = np.array(["N", "O", "Y", "E"])
SEMANTIC_TYPES = [
    ("T047", "B2.2.1.2.1", "Disease or Syndrome"),
    ("T121", "A1.4.1.1.1", "Pharmacologic Substance"),
    ("T033", "A2.2", "Finding"),
    ("T028", "A1.2.3.5", "Gene or Genome"),
    ("T061", "B1.3.1.3", "Therapeutic or Preventive Procedure"),
]
CHUNK = 100_000
"""Concepts generated at a time."""


def _words(rng: np.random.Generator, count: int) -> pl.Series:
    onsets = np.array(
        [
            "b",
            "c",
            "d",
            "f",
            "g",
            "h",
            "l",
            "m",
            "n",
            "p",
            "r",
            "s",
            "t",
            "v",
            "br",
            "cr",
            "dr",
            "fr",
            "gl",
            "ph",
            "pr",
            "st",
            "th",
            "tr",
        ]
    )
    vowels = np.array(["a", "e", "i", "o", "u", "y", "ia", "io", "ea", "ou", "é", "ñ", "ü"])
    weights = np.array([20] * 10 + [0.15] * 3, dtype=float)
    syllables = 1 + rng.binomial(3, 0.45, count)
    vowel = rng.choice(vowels, (count, 4), p=weights / weights.sum())
    parts = np.char.add(rng.choice(onsets, (count, 4)), vowel)
    ends = rng.choice(np.array(["", "n", "s", "l", "x", "c", "tis", "oma", "in", "al"]), count)
    return pl.Series(["".join(row[:n]) + end for row, n, end in zip(parts, syllables, ends, strict=True)])


def _names(rng: np.random.Generator, words: pl.Series, concept: np.ndarray) -> pl.Series:
    """Names of about five words; one in seven repeats the first words of its concept, like real synonyms."""
    rows = len(concept)
    zipf = (len(words) ** rng.random((rows, 9))).astype(np.int64) - 1
    shared = (concept[:, None] * 7919 + np.arange(9)) * 104_729 % len(words)
    picks = np.where(rng.random(rows)[:, None] < 0.15, shared, zipf)
    length = 1 + rng.binomial(8, 0.5, rows)
    columns = {f"w{i}": words.gather(picks[:, i]).set(pl.Series(length <= i), None) for i in range(9)}
    names = pl.DataFrame(columns).select(pl.concat_str(pl.all(), separator=" ", ignore_nulls=True))
    upper = pl.Series(rng.random(rows) < 0.3)
    name = names.to_series()
    return pl.select(pl.when(upper).then(name.str.to_titlecase()).otherwise(name)).to_series()


def _pick(rng: np.random.Generator, values: np.ndarray, rows: int, shares: list[float]) -> pl.Series:
    p = np.asarray(shares, dtype=float)
    return pl.Series(values[rng.choice(len(values), rows, p=p / p.sum())])


def _cui(numbers: np.ndarray) -> pl.Expr:
    return pl.lit("C") + pl.Series(numbers).cast(pl.String).str.zfill(7)


def _conso(rng: np.random.Generator, words: pl.Series, first: int, concepts: int) -> pl.DataFrame:
    counts = np.minimum(1 + rng.pareto(1.35, concepts) * 1.2, 800).astype(np.int64)
    concept = np.repeat(np.arange(first, first + concepts), counts)
    rows = len(concept)
    serial = np.arange(rows) + first * 4
    start = np.zeros(rows, dtype=bool)
    start[np.cumsum(counts) - counts] = True
    ranks = [1 / (i + 1) for i in range(len(SOURCES))]
    random_lat = _pick(rng, LANGUAGES, rows, LANGUAGE_SHARES.tolist())
    is_start = pl.Series(start)
    number = pl.Series(serial).cast(pl.String).str.zfill(8)
    return pl.select(
        CUI=_cui(concept),
        LAT=pl.when(is_start).then(pl.lit("ENG")).otherwise(random_lat),
        TS=pl.when(is_start).then(pl.lit("P")).otherwise(_pick(rng, np.array(["S", "P"]), rows, [6, 4])),
        LUI="L" + number,
        STT=pl.when(is_start).then(pl.lit("PF")).otherwise(_pick(rng, np.array(["VO", "PF"]), rows, [5, 5])),
        SUI="S" + number,
        ISPREF=pl.when(is_start).then(pl.lit("Y")).otherwise(_pick(rng, np.array(["Y", "N"]), rows, [7, 3])),
        AUI="A" + number,
        SAUI=pl.lit(""),
        SCUI=number,
        SDUI=pl.lit(""),
        SAB=_pick(rng, SOURCES, rows, ranks),
        TTY=_pick(rng, TERM_TYPES, rows, [5, 5, 2, 1, 1, 1, 1, 1]),
        CODE=number,
        STR=_names(rng, words, concept),
        SRL=pl.lit("0"),
        SUPPRESS=_pick(rng, SUPPRESSED, rows, [93, 5, 1, 1]),
        CVF=pl.lit("256"),
        END=pl.lit(""),
    )


def _rel(rng: np.random.Generator, first: int, concepts: int, total: int) -> pl.DataFrame:
    """Tradename links for one concept in twenty-five; a parent and two other relations for each concept."""
    own = np.arange(first, first + concepts)
    drugs = rng.choice(own, concepts // 25, replace=False)
    brands = rng.integers(0, total, len(drugs))
    parents = (own * rng.random(concepts)).astype(np.int64)
    links = [
        (own, parents, "PAR", "inverse_isa"),
        (parents, own, "CHD", "isa"),
        (own, rng.integers(0, total, concepts), "RO", "associated_with"),
        (own, rng.integers(0, total, concepts), "SIB", ""),
        (drugs, brands, "RO", "has_tradename"),
        (brands, drugs, "RO", "tradename_of"),
    ]
    return pl.concat(
        pl.select(
            _cui(a).alias("CUI1"), AUI1=pl.lit("A1"), STYPE1=pl.lit("CUI"), REL=pl.lit(rel),
            CUI2=_cui(b), AUI2=pl.lit("A2"), STYPE2=pl.lit("CUI"), RELA=pl.lit(rela),
            RUI=pl.lit("R1"), SRUI=pl.lit(""), SAB=pl.lit("RXNORM"), SL=pl.lit("RXNORM"),
            RG=pl.lit(""), DIR=pl.lit(""), SUPPRESS=pl.lit("N"), CVF=pl.lit(""), END=pl.lit(""),
        )
        for a, b, rel, rela in links
    ).sort("CUI1")  # fmt: skip


def _def(rng: np.random.Generator, words: pl.Series, first: int, concepts: int) -> pl.DataFrame:
    """A definition of about 250 characters for one concept in fifteen."""
    defined = np.arange(first, first + concepts, 15)
    texts = [_names(rng, words, defined) for _ in range(6)]
    return pl.select(
        CUI=_cui(defined), AUI=pl.lit("A1"), ATUI=pl.lit("AT1"), SATUI=pl.lit(""), SAB=pl.lit("NCI"),
        DEF=pl.concat_str(texts, separator=", "), SUPPRESS=pl.lit("N"), CVF=pl.lit(""), END=pl.lit(""),
    )  # fmt: skip


def _sty(rng: np.random.Generator, first: int, concepts: int) -> pl.DataFrame:
    picks = rng.integers(0, len(SEMANTIC_TYPES), concepts)
    table = pl.DataFrame(SEMANTIC_TYPES, schema=["TUI", "STN", "STY"], orient="row")[picks]
    ends = table.with_columns(ATUI=pl.lit("AT00000001"), CVF=pl.lit("256"), END=pl.lit(""))
    return pl.select(CUI=_cui(np.arange(first, first + concepts))).hstack(ends)


def make_release(folder: Path, *, rows: int, seed: int = 33) -> Path:
    """Write the five files to `folder`, unless they exist, and return it."""
    if (folder / "MRRANK.RRF").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    words = _words(rng, 60_000)
    total = int(rows / ROWS_PER_CONCEPT)
    makers = {
        "MRCONSO.RRF": lambda first, n: _conso(rng, words, first, n),
        "MRREL.RRF": lambda first, n: _rel(rng, first, n, total),
        "MRSTY.RRF": lambda first, n: _sty(rng, first, n),
        "MRDEF.RRF": lambda first, n: _def(rng, words, first, n),
    }
    for name, make in makers.items():
        with open(folder / name, "wb") as file:
            for first in range(0, total, CHUNK):
                frame = make(first, min(CHUNK, total - first))
                frame.write_csv(file, separator="|", include_header=False, quote_style="never")
    ranks = [
        f"{400 - i * len(TERM_TYPES) - j:04}|{sab}|{tty}|N|"
        for i, sab in enumerate(SOURCES)
        for j, tty in enumerate(TERM_TYPES)
    ]
    (folder / "MRRANK.RRF").write_text("\n".join(ranks) + "\n")
    return folder

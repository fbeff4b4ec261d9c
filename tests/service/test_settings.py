from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.errors import ConfigError, SapbertError
from sapbert.service.settings import KeySettings, Limits, LinkerSettings, load_settings

DIGEST = "ab" * 32


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "service.toml"
    path.write_text(text)
    return path


def test_a_configuration_has_linkers_keys_and_limits(tmp_path: Path) -> None:
    path = config(
        tmp_path,
        f"""
        public_url = "https://example.org/link"
        [linkers.mesh]
        index = "mesh-index"
        title = "MeSH 2026"
        calibration = "calibration.json"
        [linkers.hpo]
        index = "/indexes/hpo"
        mentions = "train.tsv"
        mentions_prefix = "hp"
        [limits]
        mentions = 5
        seconds = 2
        [keys.alice]
        sha256 = "{DIGEST}"
        mentions_per_second = 7.5
        """,
    )

    result = load_settings(path)

    assert list(result.linkers) == ["mesh", "hpo"]
    assert result.linkers["mesh"] == LinkerSettings(
        index=tmp_path / "mesh-index", title="MeSH 2026", calibration=tmp_path / "calibration.json"
    )
    assert result.linkers["hpo"].index == Path("/indexes/hpo")
    assert result.linkers["hpo"].mentions == tmp_path / "train.tsv"
    assert result.limits == Limits(mentions=5, seconds=2.0)
    assert result.keys == {"alice": KeySettings(sha256=DIGEST, mentions_per_second=7.5)}
    assert result.public_url == "https://example.org/link"


def test_a_single_index_is_named_after_its_folder(tmp_path: Path) -> None:
    result = load_settings(tmp_path / "my index (new)")
    assert result.linkers == {"my-index-new": LinkerSettings(index=tmp_path / "my index (new)")}


def test_the_bundled_index_is_named_default(tmp_path: Path) -> None:
    assert load_settings("default").linkers == {"default": LinkerSettings(index="default")}

    path = config(tmp_path, '[linkers.mesh]\nindex = "default"\n[linkers.own]\nindex = "./default"')
    assert [linker.index for linker in load_settings(path).linkers.values()] == [
        "default",
        tmp_path / "default",
    ]


def test_a_folder_called_default_is_not_the_bundled_index(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    config(tmp_path, '[linkers.own]\nindex = "./default"')
    for what in ("./default", "service.toml"):
        [linker] = load_settings(what).linkers.values()
        assert linker.index == Path("default")


@given(st.text(alphabet="ab-._é /", max_size=80))
def test_any_folder_name_gives_a_valid_linker_name(name: str) -> None:
    assert len(load_settings(Path("x") / name).linkers) == 1


INDEX = '[linkers.a]\nindex = "x"\n'
KEY = f'[keys.bob]\nsha256 = "{DIGEST}"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no linker is configured"),
        ("[linkers]", "no linker is configured"),
        ("[linkers.a]", "linkers.a.index: Field required"),
        (INDEX + 'titel = "y"', "unknown setting 'linkers.a.titel'; did you mean 'linkers.a.title'"),
        (INDEX + "[limit]\nmentions = 1", "unknown setting 'limit'; did you mean 'limits'"),
        (INDEX + "[limits]\nmention = 1", "unknown setting 'limits.mention'; did you mean 'limits.mentions'"),
        (INDEX + "[limits]\nmentions = 0", "limits.mentions must be above 0, got 0"),
        (INDEX + '[limits]\nmentions = "many"', "limits.mentions: Input should be a valid integer"),
        (INDEX + '[keys.bob]\nsha256 = "secret"', "sha256 must have 64 hexadecimal digits"),
        (INDEX + f"{KEY}requests = 0", "requests must be at least 1, got 0"),
        (INDEX + f"{KEY}mentions_per_second = -1", "mentions_per_second must be above 0"),
        (INDEX + '[keys."a b"]\nsha256 = "' + DIGEST + '"', "'a b' is not a valid linker or key name"),
        ('[linkers."../x"]\nindex = "x"', "'../x' is not a valid"),
        ("linkers = 7", "linkers: Input should be a valid"),
        ("[linkers", "not valid TOML"),
    ],
)  # fmt: skip
def test_an_invalid_configuration_is_reported_in_one_line(tmp_path: Path, text: str, problem: str) -> None:
    path = config(tmp_path, text)
    with pytest.raises(SapbertError) as error:
        load_settings(path)
    assert problem in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_configuration_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SapbertError, match=r"service.toml: cannot be read: No such file"):
        load_settings(tmp_path / "service.toml")


def test_errors_do_not_repeat_a_secret(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load_settings(config(tmp_path, INDEX + '[keys.bob]\nsha256 = "hunter2"'))
    assert "hunter2" not in str(error.value)

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import InputError
from sim.scenario.document import MAX_BYTES, dump_yaml, load_document, parse_yaml


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "x.yaml")
    return str(caught.value)


def test_a_key_given_twice_is_refused_with_its_line() -> None:
    assert "x.yaml:2" in (message := refusal("a: 1\na: 2"))
    assert "'a' is given twice" in message
    assert "'b' is given twice" in refusal("a: {b: 1, b: 2}")


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = "{a: 1e3, b: no, c: 2024-01-01, d: 1:30, e: .5, f: null, g: true, h: '1'}"
    expected = {"a": 1000.0, "b": "no", "c": "2024-01-01", "d": "1:30", "e": 0.5, "f": None, "g": True, "h": "1"}
    assert parse_yaml(text, "") == expected


def test_merge_keys_and_anchors_work() -> None:
    assert parse_yaml("base: &b {a: 1, c: 2}\nnew: {<<: *b, c: 3}", "")["new"] == {"a": 1, "c": 3}


@pytest.mark.parametrize("text", ["a: &a [*a]", "[" * 3000], ids=["endless", "deep"])
def test_bottomless_nesting_is_refused(text: str) -> None:
    assert "nested deeper" in refusal(text)


def test_anchors_that_unfold_into_billions_are_refused() -> None:
    layers = ["a0: &a0 [1,1,1,1,1,1,1,1,1]"]
    layers += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    assert "more than" in refusal("\n".join(layers))


def test_code_in_yaml_is_refused() -> None:
    assert "not valid YAML" in refusal("!!python/object/apply:os.system ['true']")


LETTERS = st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp"))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(LETTERS, max_size=12)


@given(st.dictionaries(st.text(LETTERS, min_size=1, max_size=8), SCALARS | st.lists(SCALARS, max_size=3), max_size=5))
def test_what_is_dumped_reads_back_equal(document: dict[str, object]) -> None:
    assert parse_yaml(dump_yaml(document), "") == document


@pytest.mark.parametrize("text", ["1e3", "no", "yes", "2024-01-01", "1:30", "0x10", "1_000", "~", "", "<<", "=", "010"])
def test_text_that_looks_like_a_number_stays_text(text: str) -> None:
    assert parse_yaml(dump_yaml({"a": text}), "") == {"a": text}


def test_whoever_names_another_file_is_told_which_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in ("run/scenario.yaml", "chat.yaml", "trace.csv"):
        (tmp_path / name).write_text("arrival_s,prompt_tokens,output_tokens\n")
    for name, remedy in (
        ("run", "name a file: " + str(tmp_path / "run" / "scenario.yaml")),
        ("trace.csv", "a trace is named in a scenario"),
        ("nothing", "known: chat.yaml"),
    ):
        with pytest.raises(InputError) as caught:
            load_document(tmp_path / name)
        assert caught.value.remedy.startswith(remedy)


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text("name: x")
    for name, content, reason in (
        ("empty.yaml", b"", "empty"),
        ("list.yaml", b"- 1", "keys and values"),
        ("binary.yaml", b"\xff\xfe\x00", "UTF-8"),
        ("twice.json", b'{"a": 1, "a": 2}', "given twice"),
        ("broken.json", b'{"a": ', "not valid JSON"),
        ("huge.yaml", b"#" * (MAX_BYTES + 1), "bytes"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=reason):
            load_document(tmp_path / name)
    with pytest.raises(InputError, match=r"did you mean 'chat.yaml'"):
        load_document(tmp_path / "chatt.yaml")
    with pytest.raises(InputError, match="folder"):
        load_document(tmp_path)


def test_a_byte_order_mark_and_windows_line_ends_are_harmless(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert load_document(tmp_path / "a.yaml") == {"a": 1, "b": 2}


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(InputError, match="more than"):
        load_document(Path("/dev/zero"))

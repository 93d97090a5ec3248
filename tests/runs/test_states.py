"""Nested states and weights: read back as they were, and never saved once they have diverged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from comper.errors import DamagedFileError, DivergedError
from comper.runs.states import check_same_shapes, first_difference, flatten, nest, pack, pack_weights, unpack, unpack_weights


def test_a_nested_state_is_read_back_with_its_types() -> None:
    state = {
        "tensor": torch.arange(6.0).view(2, 3),
        "array": np.arange(4, dtype=np.int64),
        "flags": np.array([True, False]),
        "bytes": b"\x00\xff",
        "rng": np.random.default_rng(3).bit_generator.state,
        "deep": {"none": None, "number": 0.1, "empty": {}, "big": 2**127, "scalar": np.float32(0.5)},
        "none of it": np.empty((0, 3), np.float32),
    }
    back = unpack(*pack(state))
    assert torch.equal(back["tensor"], state["tensor"])  # type: ignore[arg-type]
    assert all(np.array_equal(back[name], state[name]) for name in ("array", "flags", "none of it"))  # type: ignore[arg-type]
    assert back["flags"].dtype == np.bool_
    assert back["bytes"] == b"\x00\xff"
    assert back["rng"] == state["rng"]
    assert back["deep"] == {"none": None, "number": 0.1, "empty": {}, "big": 2**127, "scalar": 0.5}


@pytest.mark.parametrize("bad", [np.array([1.0, np.nan], np.float32), torch.tensor([float("inf")]), float("nan")])
def test_what_has_diverged_is_never_saved(bad: Any) -> None:
    with pytest.raises(DivergedError, match="weights"):
        pack({"weights": bad})


def test_weights_are_read_back_nested_and_with_their_shapes() -> None:
    weights = {"cnn": {"conv": {"weight": torch.ones(2, 3), "bias": np.zeros(2)}}, "count": torch.tensor(7)}
    back = unpack_weights(pack_weights(weights))
    assert set(flatten(back)) == {"cnn/conv/weight", "cnn/conv/bias", "count"}
    assert back["cnn"]["conv"]["weight"].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert back["count"].shape == ()
    check_same_shapes(back, weights)


def test_weights_of_other_networks_are_refused() -> None:
    with pytest.raises(DamagedFileError, match="other networks"):
        check_same_shapes({"a": np.zeros(2)}, {"a": np.zeros(3)})
    with pytest.raises(DamagedFileError, match="other networks"):
        check_same_shapes({"a": np.zeros(2)}, {"b": np.zeros(2)})
    with pytest.raises(DamagedFileError, match="other networks"):
        check_same_shapes({"a": np.zeros(2)}, {"a": np.zeros(2, np.int32)})


def test_an_empty_table_takes_any_number_of_rows_and_no_other_columns() -> None:
    check_same_shapes({"a": np.zeros((5, 3))}, {"a": np.zeros((0, 3))})
    for wrong in (np.zeros((5, 2)), np.zeros(5), np.zeros((5, 3, 1)), np.zeros((5, 3), np.float32)):
        with pytest.raises(DamagedFileError, match="other networks"):
            check_same_shapes({"a": wrong}, {"a": np.zeros((0, 3))})


def test_the_empty_tables_of_a_part_get_equally_many_rows() -> None:
    own = {"graph": {"states": np.zeros((0, 16)), "values": np.zeros((0, 6))}, "other": {"table": np.zeros((0, 2))}}
    graph = {"states": np.zeros((5, 16)), "values": np.zeros((5, 6))}
    check_same_shapes({"graph": graph, "other": {"table": np.zeros((9, 2))}}, own)
    with pytest.raises(DamagedFileError, match="do not have equally many rows"):
        check_same_shapes({"graph": graph | {"values": np.zeros((4, 6))}, "other": {"table": np.zeros((5, 2))}}, own)


def test_diverged_weights_are_never_saved() -> None:
    with pytest.raises(DivergedError, match="cnn/bias"):
        pack_weights({"cnn": {"bias": np.array([np.inf])}})


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, pack_weights({"a": np.zeros(3)})[:-4]])
def test_a_file_that_holds_no_weights_is_refused(content: bytes) -> None:
    with pytest.raises(DamagedFileError, match="Saved weights cannot be read"):
        unpack_weights(content)


def test_nesting_undoes_flattening() -> None:
    nested = {"a": {"b": np.arange(2), "c": {"d": np.arange(3)}}}
    assert {path: array.size for path, array in flatten(nested).items()} == {"a/b": 2, "a/c/d": 3}
    assert nest(flatten(nested)).keys() == nested.keys()


def test_a_value_thousands_of_levels_deep_is_damage() -> None:
    with pytest.raises(DamagedFileError, match="levels deep"):
        nest({"/".join("a" * 3_000): 1})


def test_what_could_not_be_saved_is_not_read_either() -> None:
    broken = safetensors.numpy.save({"a/b": np.array([1.0, np.nan])})
    with pytest.raises(DamagedFileError, match=r"NaN or infinity \('a/b'\)"):
        unpack(broken, b'{"kinds": {}, "values": {}}')
    with pytest.raises(DamagedFileError, match=r"NaN or infinity \('a/b'\)"):
        unpack_weights(broken)
    with pytest.raises(DamagedFileError, match=r"NaN or infinity \('x'\)"):
        unpack(safetensors.numpy.save({}), b'{"kinds": {}, "values": {"x": Infinity}}')
    unprintable = safetensors.numpy.save({"\x1b[2J\n": np.array([np.nan])})
    for read in (unpack_weights, lambda content: unpack(content, b'{"kinds": {}, "values": {}}')):
        with pytest.raises(DamagedFileError, match=r"NaN or infinity \('\\x1b\[2J\\n'\)"):
            read(unprintable)
    for no_bytes in (np.zeros(3, np.int64), np.zeros((1, 3), np.uint8)):
        with pytest.raises(DamagedFileError, match="cannot be read"):
            unpack(safetensors.numpy.save({"a": no_bytes}), b'{"kinds": {"a": "bytes"}, "values": {}}')


@pytest.mark.parametrize(
    ("other", "path"),
    [
        ({"a": np.zeros(3, np.float32), "b": {"c": 1}}, None),
        ({"a": np.zeros(3, np.float64), "b": {"c": 1}}, "a"),
        ({"a": np.zeros((1, 3), np.float32), "b": {"c": 1}}, "a"),
        ({"a": bytes(12), "b": {"c": 1}}, "a"),
        ({"a": np.zeros(3, np.float32), "b": {"c": True}}, "b/c"),
        ({"a": np.zeros(3, np.float32), "b": {"c": 1.0}}, "b/c"),
        ({"a": np.zeros(3, np.float32), "b": {}}, "b"),
        ({"a": np.zeros(3, np.float32), "b": {"c": 1}, "d": 0}, "d"),
    ],
)
def test_states_differ_in_kind_form_and_content(other: dict[str, Any], path: str | None) -> None:
    assert first_difference({"a": np.zeros(3, np.float32), "b": {"c": 1}}, other) == path

"""The manifest: both formats are read, one is written, and every value is what it should be."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from comper.errors import DamagedFileError, UsageError
from comper.runs.manifest import FORMAT, Manifest

COMPLETE = Manifest(
    agent="my_module:my_agent", game="gym:ALE/Pong-v5", seed=3, status="finished", device="cpu", threads=2,
    cpu_capability="AVX2", identity={"rom_md5": "0" * 32}, network="my_module:make_network",
    trusted_code=["my_module:my_agent", "my_module:make_network"],
    changed={"discount": [0.5, 0.99]}, learns=True, num_scored_episodes=3, floor=21.2, population=["gym:ALE/Pong-v5/seed-3"],
    started_from={"run": "some\u00a0where", "step": 5, "sha256": "5" * 64},
    versions={"numpy": "2.0"}, commit="0" * 40, created="2026-01-01T00:00:00",
    config_sha256="1" * 64, finished="2026-01-01T01:00:00", wall_seconds=3600.5, steps=20, total_frames=100, episodes=1,
    files={"episodes.jsonl": {"lines": 1, "bytes": 5, "sha256": "2" * 64}}, source="released logs", source_file="a/b",
    source_sha256="3" * 64, remarks=["torn"], other={"unknown": [1, {"deep": None}]},
)  # fmt: skip
FIRST_FORMAT = {"format": 1, "agent": "dqn", "game": "freeway", "seed": 0, "status": "running", "rom_md5": "4" * 32}


def test_every_field_is_read_back_and_unknown_keys_are_kept(tmp_path: Path) -> None:
    assert all(getattr(COMPLETE, f.name) for f in dataclasses.fields(Manifest))  # or this test would not see them all
    COMPLETE.write(tmp_path)
    assert Manifest.read(tmp_path) == COMPLETE
    assert json.loads((tmp_path / "manifest.json").read_text())["unknown"] == [1, {"deep": None}]


def test_what_is_written_names_the_environment_game_and_leaves_out_what_is_not_known() -> None:
    content = Manifest(agent="dqn", game="freeway", seed=0).to_json()
    assert content == {"format": FORMAT, "agent": "dqn", "game": "freeway", "seed": 0, "status": "running"}


def test_a_manifest_of_the_first_format_without_a_seal_is_read(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(FIRST_FORMAT | {"device": None, "commit": None}))
    manifest = Manifest.read(tmp_path)
    assert (manifest.format, manifest.identity, manifest.device) == (1, {"rom_md5": "4" * 32}, None)
    with pytest.raises(UsageError, match=r"made by comper 0\.1 \(run format 1\), whose checkpoints and weights this version"):
        manifest.require_this_format(tmp_path)


def test_a_manifest_of_this_format_must_be_sealed(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(COMPLETE.to_json()))
    with pytest.raises(DamagedFileError, match="not as it was written"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize(
    "name", ["freeway", "gym:CartPole-v1", "minigrid:DoorKey-6x6-v0", "my_module:make_env", "gym:ALE/Pong-v5"]
)
def test_names_of_environments_are_names(name: str) -> None:
    assert Manifest.from_json(FIRST_FORMAT | {"game": name}, where="it").game == name


@pytest.mark.parametrize(
    "name", ["", "../up", "a/../b", "/root", "a//b", "a b", "a\n", "\x1b[1m", "a\\b", ".hidden", "x" * 200, 7, None, ["a"]]
)
def test_what_is_no_name_is_refused(name: Any) -> None:
    with pytest.raises(DamagedFileError, match=r"game is .*, expected a name"):
        Manifest.from_json(FIRST_FORMAT | {"game": name}, where="it")


@pytest.mark.parametrize(
    "changed",
    [[], {"x; rm -rf ~ #": [1, 2]}, {"": [1]}, {"a" * 200: [1]}, {"loss": ["\x1b[2J", ""]}, {"loss": "\ud800"}, {"a": [[1]]}],
)
def test_what_are_no_settings_is_refused(changed: Any) -> None:
    with pytest.raises(DamagedFileError, match=r"changed is .*, expected settings by name"):
        Manifest.from_json(FIRST_FORMAT | {"changed": changed}, where="it")


@pytest.mark.parametrize(
    "origin",
    [{}, {"run": "a"}, {"sha256": "0"}, *({"run": run, "sha256": "0"} for run in ("", "\0x", "\x1b[2J", 3, ["x"])), [], "a"],
)
def test_what_is_no_origin_of_weights_is_refused(origin: Any) -> None:
    with pytest.raises(DamagedFileError, match=r"started_from is .*, expected a run and the digest of its weights"):
        Manifest.from_json(FIRST_FORMAT | {"started_from": origin}, where="it")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b" " * (1 << 21)])
def test_a_file_that_holds_no_manifest_is_refused_with_a_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"manifest\.json: "):
        Manifest.read(tmp_path)


@pytest.mark.parametrize("value", [None, 0, 99, "1", [1], {}])
def test_another_format_is_named(value: Any) -> None:
    with pytest.raises(DamagedFileError, match=r"format is .*, this version reads 1 to 2"):
        Manifest.from_json(FIRST_FORMAT | {"format": value}, where="it")


def test_true_is_no_number() -> None:
    for key in ("format", "seed"):
        with pytest.raises(DamagedFileError, match=f"{key} is True"):
            Manifest.from_json(FIRST_FORMAT | {key: True}, where="it")


@pytest.mark.parametrize("key", ["floor", "wall_seconds"])
@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan"), True, "1"])
def test_what_is_no_number_a_float_can_hold_is_refused(key: str, value: Any) -> None:
    with pytest.raises(DamagedFileError, match=f"{key} is "):
        Manifest.from_json(FIRST_FORMAT | {key: value}, where="it")

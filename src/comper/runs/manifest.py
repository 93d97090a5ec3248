"""manifest.json: what a run is, what made it, and, once it is finished, what its files must hold.

Format 2 is written. Format 1, written by comper 0.1, is still read; it names the ROM's checksum `rom_md5` in place of
`identity`, and the oldest such manifests have neither a seal nor the digest of the configuration.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from comper.errors import DamagedFileError, OtherVersionError
from comper.runs.files import SEAL, is_digest, is_sealed, read_json_object, sealed, write_atomically
from comper.runs.folder import MANIFEST_FILE, run_path

FORMAT = 2
READ_FORMATS = (1, FORMAT)
MAX_BYTES = 1 << 20

RUNNING = "running"
FINISHED = "finished"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*(?:[:/][A-Za-z0-9_][A-Za-z0-9._+-]*)*")
_MAX_NAME_LENGTH = 128
_TRIAL = re.compile(r"(.+)/seed-([0-9]{1,19})")
MAX_SEED = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A run's manifest. Every field but the first three has a default, because older manifests lack it."""

    agent: str
    game: str
    """The environment's name: "freeway", "gym:CartPole-v1"."""
    seed: int
    status: str = RUNNING
    format: int = FORMAT

    device: str | None = None
    threads: int | None = None
    cpu_capability: str | None = None
    """The instruction set of the processor that torch used."""
    identity: dict[str, str] = field(default_factory=dict)
    """What else the environment depends on: the ROM's checksum, versions of its packages."""
    learns: bool | None = None
    """Whether the agent learns; a random or constant policy does not."""
    num_scored_episodes: int | None = None
    """A trial's score is the mean of so many of its last episodes."""
    floor: float | None = None
    """Score without learning, where it was measured with the environment's settings of this run."""
    network: str | None = None
    """The user's own network, "my_module:make_network"; None for the agent's."""
    trusted_code: list[str] = field(default_factory=list)
    """Code outside comper that the run needs, as "my_module:my_agent"."""
    changed: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the agent's own: name -> [value, default]."""
    population: list[str] = field(default_factory=list)
    """The trials that were started together, as "freeway/seed-0"."""
    started_from: dict[str, Any] | None = None
    """The run, step and digest of the weights it began with, if not its own."""

    versions: dict[str, str] = field(default_factory=dict)
    commit: str | None = None
    created: str | None = None
    config_sha256: str | None = None

    finished: str | None = None
    """When it ended."""
    wall_seconds: float | None = None
    steps: int | None = None
    total_frames: int | None = None
    episodes: int | None = None
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name -> size, SHA-256 and, of a log, lines; once finished."""

    source: str | None = None
    """Of an imported log: where it is from."""
    source_file: str | None = None
    source_sha256: str | None = None
    remarks: list[str] = field(default_factory=list)
    """What the importer noticed."""

    other: dict[str, Any] = field(default_factory=dict)
    """Keys that this version does not know."""

    @property
    def is_finished(self) -> bool:
        return self.status == FINISHED

    @property
    def trial(self) -> str:
        """The trial as `population` names it."""
        return f"{self.game}/seed-{self.seed}"

    def siblings(self, folder: Path) -> dict[str, Path]:
        """Where the trials that were started together are kept, by name; none where this folder was moved or renamed."""
        place = folder.resolve()
        if len(place.parents) < 3 or place != run_path(place.parents[2], agent=self.agent, game=self.game, seed=self.seed):
            return {}
        pairs = (trial.rpartition("/seed-") for trial in self.population)
        return {
            f"{game}/seed-{seed}": run_path(place.parents[2], agent=self.agent, game=game, seed=int(seed))
            for game, _, seed in pairs
        }

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of a run folder; one that is not as it was written is refused."""
        path = folder / MANIFEST_FILE
        content = read_json_object(path, max_bytes=MAX_BYTES)
        _check_format(content.get("format"), str(path))  # first: what comes later may be sealed in another way
        is_older_than_seals = content.get("format") == 1 and not {SEAL, "config_sha256"} & set(content)
        if not (is_sealed(content) or is_older_than_seals):
            raise DamagedFileError(f"{path}: not as it was written.")
        return cls.from_json(content, where=str(path))

    @classmethod
    def from_json(cls, content: Mapping[str, Any], *, where: str) -> Self:
        """Check a parsed manifest, value by value."""
        rest = {key: value for key, value in content.items() if key != SEAL}
        _check_format(rest.get("format"), where)
        required: tuple[str, ...] = _REQUIRED
        if rest["format"] == 1:
            rom_md5 = rest.pop("rom_md5", None)
            rest["identity"] = {} if rom_md5 is None else {"rom_md5": rom_md5}
        else:
            required = (*_REQUIRED, "config_sha256")
        checked: dict[str, Any] = {}
        for key, (is_right, expected) in _RULES.items():
            value = rest.pop(key, None)
            if value is None and key not in required:
                continue
            if not is_right(value):
                raise DamagedFileError(f"{where}: {key} is {_shown(value)}, expected {expected}.")
            checked[key] = value
        return cls(**checked, other=rest)

    def to_json(self) -> dict[str, Any]:
        """The manifest as it is written: without a seal, and without what it has nothing to say about."""
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "other"}
        present = {key: value for key, value in content.items() if value is not None and value not in ([], {})}
        return {"format": FORMAT, **{key: value for key, value in present.items() if key != "format"}, **self.other}

    def write(self, folder: Path) -> None:
        """Write it, sealed, into a run folder."""
        write_atomically(folder / MANIFEST_FILE, (json.dumps(sealed(self.to_json()), indent=2) + "\n").encode())

    def require_this_format(self, folder: Path) -> None:
        """Refuse to go on from the states and weights of an older format."""
        if self.format != FORMAT:
            raise OtherVersionError(
                f"{folder}: made by comper 0.1 (run format {self.format}), whose checkpoints and weights this version cannot"
                " take over, because networks and memories are saved differently now. Finish it with that version, or begin"
                " a new run; `comper report` and `comper verify` still read it."
            )


def _check_format(value: Any, where: str) -> None:
    if value not in READ_FORMATS:
        raise DamagedFileError(f"{where}: format is {_shown(value)}, this version reads 1 to {FORMAT}.")


def _is_text(value: Any) -> bool:
    """Text that can be shown: no control characters, no halves of characters."""
    return isinstance(value, str) and value.isprintable()


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_NAME_LENGTH and _NAME.fullmatch(value) is not None


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def is_number(value: Any, *, low: float, high: float) -> bool:
    """Whether a parsed value is a number between two others."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def is_duration(value: Any) -> bool:
    """Whether a parsed value is a number of seconds."""
    return is_number(value, low=0, high=1e12)


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_trials(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_trial, value)) and len(set(value)) == len(value)


def _is_trial(value: Any) -> bool:
    match = _TRIAL.fullmatch(value) if isinstance(value, str) else None
    return match is not None and _is_name(match[1]) and int(match[2]) <= MAX_SEED


def _is_text_by_text(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, [*value, *value.values()]))


def _are_changes(value: Any) -> bool:
    """Settings by name, each a value or several: reports show them, and put them into commands to be pasted."""
    if not isinstance(value, dict) or not all(name.isidentifier() and _is_name(name) for name in value):
        return False
    values = [part for given in value.values() for part in (given if isinstance(given, list) else [given])]
    return all(part is None or isinstance(part, int | float) or _is_text(part) for part in values)


def _is_origin(value: Any) -> bool:
    """A folder, whose name may hold any character that does not act on a terminal, and a digest."""
    if not (isinstance(value, dict) and isinstance(run := value.get("run"), str) and _is_text(value.get("sha256"))):
        return False
    return run != "" and not any(unicodedata.category(character) == "Cc" for character in run)


def _are_digests(value: Any) -> bool:
    return isinstance(value, dict) and all(map(is_digest, value.values()))


_REQUIRED = ("format", "agent", "game", "seed", "status")
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "format": (_is_count, "a whole number"),
    **dict.fromkeys(("agent", "game"), (_is_name, "a name")),
    "status": (lambda value: value in (RUNNING, FINISHED), f"{RUNNING} or {FINISHED}"),
    "seed": (lambda value: _is_count(value) and value <= MAX_SEED, "a whole number"),
    **dict.fromkeys(("threads", "steps", "total_frames", "episodes"), (_is_count, "a whole number")),
    **dict.fromkeys(("device", "cpu_capability", "network", "commit", "created", "config_sha256"), (_is_text, "text")),
    **dict.fromkeys(("finished", "source", "source_file", "source_sha256"), (_is_text, "text")),
    **dict.fromkeys(("trusted_code", "remarks"), (_is_list_of_text, "a list of texts")),
    "population": (_are_trials, "a list of different trials"),
    **dict.fromkeys(("identity", "versions"), (_is_text_by_text, "texts by name")),
    "started_from": (_is_origin, "a run and the digest of its weights"),
    "changed": (_are_changes, "settings by name"),
    "learns": (lambda value: isinstance(value, bool), "true or false"),
    "num_scored_episodes": (lambda value: _is_count(value) and value > 0, "a whole number above 0"),
    "floor": (lambda value: is_number(value, low=-1e100, high=1e100), "a number"),
    "wall_seconds": (is_duration, "a number of seconds"),
    "files": (_are_digests, "the digests of files"),
}


def _shown(value: Any) -> str:
    return repr(value)[:60]

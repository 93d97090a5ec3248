"""A plan: environments x agents x seeds x settings, in one TOML file, checked completely before anything starts.

    environments = ["freeway", "asterix"]   # names as `comper train` takes them; "paper": the paper's eight games
    seeds = 5                               # 0 to 4; or a list
    agents = ["comper-single", "dqn"]       # each is a variant of its own ...
    settings = { frames = 20_000 }          # ... with these settings

    [grid]                                  # every combination of these, too
    discount = [0.9, 0.99]

In place of `agents` and `grid`, variants with names; what a variant does not say is taken from the top of the file.

    [[variants]]
    name = "huber"
    agent = "dqn"
    settings = { loss = "huber" }
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from comper.environments.environment import EnvironmentSpec
from comper.errors import UsageError
from comper.runs.folder import run_path
from comper.settings import parse_settings, read_toml
from comper.training.options import RunSettings, resolve_settings
from comper.training.train import MAX_TRIALS, find_environments

SHARED_KEYS = ("environments", "seeds", "settings")
TOP_KEYS = (*SHARED_KEYS, "agents", "agent", "grid", "variants")
SEARCH = "search"
"""A table of settings to be searched for; `comper.studies.settings_search` reads it."""
VARIANT_KEYS = ("name", "agent", *SHARED_KEYS)
MAX_VARIANTS = 10_000
_TAKEN = ("plan.toml", "report")
"""Names that a study's folder needs for itself."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]{0,99}")


@dataclass(frozen=True)
class Variant:
    """An agent with its settings, and where it is tried."""

    name: str
    environments: tuple[tuple[EnvironmentSpec, RunSettings], ...]
    seeds: tuple[int, ...]

    @property
    def agent(self) -> str:
        return self.environments[0][1].agent_name


@dataclass(frozen=True)
class PlannedTrial:
    """One trial of a study."""

    variant: str
    environment: EnvironmentSpec
    seed: int
    settings: RunSettings

    @property
    def frames(self) -> int:
        return self.settings.config.frames

    def path(self, out: Path) -> Path:
        """Where it is kept."""
        return run_path(out / self.variant, agent=self.settings.agent_name, game=self.environment.name, seed=self.seed)

    def __str__(self) -> str:
        return f"{self.variant}, {self.environment.name}, seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """What a study is to try."""

    name: str
    text: bytes
    variants: tuple[Variant, ...]

    @property
    def trials(self) -> list[PlannedTrial]:
        """Every trial; the first seeds of all variants come first, so that there is something to compare early."""
        by_seed = sorted(((seed, variant) for variant in self.variants for seed in variant.seeds), key=lambda pair: pair[0])
        return [
            PlannedTrial(variant.name, spec, seed, settings)
            for seed, variant in by_seed
            for spec, settings in variant.environments
        ]


def read_plan(given: str, *, trusted: Sequence[str] = ()) -> Plan:
    """Read and check a plan: a TOML file, or `paper`. Code from outside comper that it names must be trusted."""
    if given == "paper":
        with resources.as_file(resources.files("comper.studies") / "paper.toml") as path:
            text = read_toml(path)
            return make_plan(parse_settings(text, where=str(path)), "paper", text, where=str(path), trusted=trusted)
    path = plan_file(given)
    text = read_toml(path)
    content = parse_settings(text, where=str(path))
    if SEARCH in content:
        raise UsageError(f"{path}: has a [search], which `comper search {path}` carries out.")
    return make_plan(content, path.stem, text, where=str(path), trusted=trusted)


def plan_file(given: str) -> Path:
    """The file of a plan, by its name."""
    path = Path(given)
    if path.suffix != ".toml":
        raise UsageError(f"{given}: a plan is a .toml file, or `paper`.")
    return path


def make_plan(content: Mapping[str, Any], name: str, text: bytes, *, where: str, trusted: Sequence[str]) -> Plan:
    """Check the content of a plan."""
    require_known(content, TOP_KEYS, where=where)
    shared = {key: content[key] for key in SHARED_KEYS if key in content}
    variants: dict[str, Variant] = {}
    num_trials = 0
    for place, entry in _entries(content, shared, where):
        variant = _variant(entry, place, tuple(trusted))
        if variant.name in variants:
            raise UsageError(f"{where}: two variants are called {variant.name!r}.")
        variants[variant.name] = variant
        num_trials += len(variant.environments) * len(variant.seeds)
        if num_trials > MAX_TRIALS:
            raise UsageError(f"{where}: a study has at most {MAX_TRIALS:,} trials, and there are more.")
    return Plan(name, text, tuple(variants.values()))


def _entries(content: Mapping[str, Any], shared: dict[str, Any], where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Variants as the file has them, or those that agents and a grid make; each with where it is written."""
    if "variants" not in content:
        yield from _combinations(content, shared, where)
        return
    for key in ("agents", "grid"):
        if key in content:
            raise UsageError(f"{where}: give `{key}` or [[variants]], not both.")
    entries = _of_type(content["variants"], list, f"{where}: variants", "a list of [[variants]]")
    if not entries:
        raise UsageError(f"{where}: there is no variant.")
    for number, entry in enumerate(entries, start=1):
        place = f"{where}: variant {number}"
        _of_type(entry, dict, place, "a table")
        require_known(entry, VARIANT_KEYS, where=place)
        if not isinstance(entry.get("name"), str):
            raise UsageError(f"{place}: it needs a name.")
        place = f"{where}: variant {entry['name']!r}"
        common, own = (_table(source, "settings", place) for source in (shared, entry))
        agent = {"agent": content["agent"]} if "agent" in content else {}
        yield place, {**agent, **shared, **entry, "settings": {**common, **own}}


def _combinations(content: Mapping[str, Any], shared: dict[str, Any], where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if ("agents" in content) == ("agent" in content):
        raise UsageError(f"{where}: name the `agents` (or one `agent`), or [[variants]].")
    agents = _names(content.get("agents", content.get("agent")), f"{where}: agents")
    grid = _table(content, "grid", where)
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise UsageError(f"{where}: grid.{key} = {values!r}: must be a list of values.")
    if len(agents) * math.prod(map(len, grid.values())) > MAX_VARIANTS:
        raise UsageError(f"{where}: the grid has too many combinations; a study has at most {MAX_VARIANTS:,} variants.")
    for agent in agents:
        for values in itertools.product(*grid.values()):
            chosen = dict(zip(grid, values, strict=True))
            name = "+".join([re.sub(r"[^A-Za-z0-9._-]", "-", agent), *(f"{key}={value}" for key, value in chosen.items())])
            settings = {**_table(shared, "settings", where), **chosen}
            yield (f"{where}: {name}" if grid else where), {**shared, "name": name, "agent": agent, "settings": settings}


def _variant(entry: Mapping[str, Any], where: str, trusted: tuple[str, ...]) -> Variant:
    for key in ("agent", "environments", "seeds"):
        if key not in entry:
            raise UsageError(f"{where}: `{key}` is missing, here and at the top of the file.")
    name, agent = entry["name"], _of_type(entry["agent"], str, f"{where}: agent", "a name")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{where}: a name is made of letters, digits and . _ = + -, and becomes a folder.")
    if name.lower() in _TAKEN:
        raise UsageError(f"{where}: {' and '.join(_TAKEN)} belong to the study itself; choose another name.")
    try:
        specs = find_environments(_names(entry["environments"], f"{where}: environments"), trusted=trusted)
        settings = [(spec, resolve_settings(agent, [spec], entry["settings"], where=where, trusted=trusted)) for spec in specs]
    except UsageError as error:
        text = str(error)
        raise type(error)(text if text.startswith(where) else f"{where}: {text}") from None
    return Variant(name, tuple(settings), _seeds(entry["seeds"], f"{where}: seeds"))


def _seeds(value: Any, where: str) -> tuple[int, ...]:
    rule = "must be how many (1 or more), or a list of different whole numbers, 0 or more"
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_TRIALS:
        return tuple(range(value))
    is_list = isinstance(value, list) and bool(value) and all(type(seed) is int and 0 <= seed < 2**63 for seed in value)
    if not is_list or len(set(value)) != len(value):
        raise UsageError(f"{where} = {value!r}: {rule}.")
    return tuple(value)


def _names(value: Any, where: str) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{where} = {value!r}: must be a name or a list of names.")
    return names


def _table(content: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    table: dict[str, Any] = _of_type(content.get(key, {}), dict, f"{where}: {key}", "a table")
    return table


def _of_type(value: Any, kind: type, where: str, expected: str) -> Any:
    if not isinstance(value, kind):
        raise UsageError(f"{where} = {value!r}: must be {expected}.")
    return value


def require_known(content: Mapping[str, Any], known: Sequence[str], *, where: str) -> None:
    """Refuse a table with a key that nobody reads."""
    for key in content:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Keys: {', '.join(known)}. Settings belong into `settings`."
            raise UsageError(f"{where}: unknown key {key!r}. {hint}")

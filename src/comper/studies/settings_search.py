"""Settings searched for with Optuna, on top of a plan: a try is a variant, run on all environments and seeds of the plan.

    agent = "dqn"
    environments = ["gym:CartPole-v1"]
    seeds = 3
    settings = { frames = 10_000 }

    [search]
    step_size = { low = 1e-5, high = 1e-2, log = true }   # a range; whole numbers where the setting is one
    history_length = [1, 2, 4]                            # choices

Optuna's journal, a file of JSON lines beside the runs, holds what was tried. A try that was cut off goes on, a finished one is
never run again, and what is tried next depends on nothing but the tries before it.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from comper.errors import ComperError, DamagedFileError, LockedError, UsageError, explaining_os_errors, import_library
from comper.output import print_line
from comper.report.facts import Floors, all_floors, floor_of
from comper.report.scoreboard import last_scores
from comper.runs.files import read_file, read_json_lines, write_atomically
from comper.runs.folder import has_begun
from comper.runs.lock import RunLock
from comper.runs.reader import read_run
from comper.settings import MAX_COUNT, fields_of, kind_of, parse_settings, read_settings, read_toml
from comper.studies.plan import SEARCH, TOP_KEYS, Plan, make_plan, plan_file, require_known
from comper.studies.study import PLAN_FILE, Runner, open_study, run_trials
from comper.training.options import RunOptions
from comper.training.pool import run_jobs
from comper.training.train import MAX_TRIALS

JOURNAL_FILE = "search.journal"
MAX_JOURNAL_BYTES = 1 << 26
SCORE = (
    "score: mean over all environments and seeds of the last episodes, while learning; where a floor is known and not 0,"
    " (score - floor) / |floor| takes the place of a score."
)
RANGE_KEYS = ("low", "high", "log", "step")
EXAMPLE = "step_size = { low = 1e-5, high = 1e-2, log = true }"


@dataclass(frozen=True)
class SettingsSearch:
    """A plan with settings that are to be found."""

    path: Path
    content: Mapping[str, Any]
    """Of the plan, without the search."""
    ranges: Mapping[str, Any]
    """Setting -> a list of choices, or a table of low, high, and log or step."""
    plan: Plan
    """With the settings as they are where nothing is searched for."""
    trusted: tuple[str, ...]

    @property
    def whole_numbers(self) -> set[str]:
        """Settings that are searched for among whole numbers."""
        settings = self.plan.variants[0].environments[0][1]
        return {f.name for _, f in fields_of(settings.parts) if kind_of(f) == "int"}

    def plan_of(self, tries: Sequence[Try]) -> Plan:
        """The plan of some tries, a variant each."""
        variants = [{"name": attempt.name, "settings": attempt.settings} for attempt in tries]
        content = {**self.content, "variants": variants}
        return make_plan(content, self.plan.name, self.plan.text, where=str(self.path), trusted=self.trusted)

    def train_command(self, settings: Mapping[str, Any]) -> str:
        """The command that trains with these settings, with seeds that the search has not seen."""
        variant = self.plan.variants[0]
        words = ["comper", "train", *(spec.name for spec, _ in variant.environments), "--agent", variant.agent]
        for name, value in {**self.content.get("settings", {}), **settings}.items():
            words += [f"--{name.replace('_', '-')}", str(value).lower() if isinstance(value, bool) else str(value)]
        return shlex.join([*words, "--seed", str(max(variant.seeds) + 1), "--trials", str(len(variant.seeds))])


@dataclass(frozen=True)
class Try:
    """One combination of settings, and what it has come to."""

    number: int
    settings: dict[str, Any]
    score: float | None = None
    """None: it is not finished, or could not be scored."""

    @property
    def name(self) -> str:
        return f"try-{self.number:04d}"


def read_search(given: str, *, trusted: Sequence[str] = ()) -> SettingsSearch:
    """Read and check a plan with a [search]: every end of every range must be a value that the setting may have."""
    path = plan_file(given)
    text = read_toml(path)
    content = parse_settings(text, where=str(path))
    ranges = content.pop(SEARCH, None)
    if not isinstance(ranges, dict) or not ranges:
        raise UsageError(f"{path}: has no [search]: name the settings to be found there, such as {EXAMPLE}.")
    for key in ("agents", "grid", "variants"):
        if key in content:
            raise UsageError(f"{path}: a search has one `agent`; `{key}` is for `comper study`.")
    require_known(content, TOP_KEYS, where=str(path))
    plan = make_plan(content, path.stem, text, where=str(path), trusted=trusted)
    search = SettingsSearch(path, content, ranges, plan, tuple(trusted))
    for name, given_range in ranges.items():
        _check_range(search, name, given_range)
    return search


def _check_range(search: SettingsSearch, name: str, given: Any) -> None:
    where = f"{search.path}: search.{name}"
    settings = search.content.get("settings", {})
    if name in settings:
        raise UsageError(f"{where}: is given in `settings`, too. Leave it out there.")
    ends = _ends(given, where)
    for value in ends:
        content = {**search.content, "settings": {**settings, name: value}}
        make_plan(content, "", b"", where=where, trusted=search.trusted)
    numbers = [*ends, given.get("step", 1)] if isinstance(given, dict) else []
    if name in search.whole_numbers and not all(float(number).is_integer() for number in numbers):
        raise UsageError(f"{where}: is a whole number, and so are the ends of its range, and its step.")


def _ends(given: Any, where: str) -> list[Any]:
    """What must be allowed for a range to be one."""
    if isinstance(given, list) and given:
        return given
    if not isinstance(given, dict) or not {"low", "high"} <= set(given):
        raise UsageError(f"{where} = {given!r}: must be a list of choices, or a range {{ low = ..., high = ... }}.")
    require_known(given, RANGE_KEYS, where=where)
    low, high, step = given["low"], given["high"], given.get("step", 1)
    numbers = [low, high, step]
    if not all(isinstance(n, int | float) and not isinstance(n, bool) and abs(n) <= MAX_COUNT for n in numbers):
        raise UsageError(f"{where}: low, high and step must be numbers, none beyond {MAX_COUNT:,}.")
    if not isinstance(given.get("log", False), bool) or ("step" in given and given.get("log")):
        raise UsageError(f"{where}: log is true or false, and goes without step.")
    if low >= high or step <= 0:
        raise UsageError(f"{where}: low must be less than high, and step more than 0.")
    if "step" in given and (rest := (Decimal(str(high)) - Decimal(str(low))) % Decimal(str(step))):
        raise UsageError(f"{where}: no step leads from low to high; with high = {Decimal(str(high)) - rest} one would.")
    if given.get("log") and low <= 0:
        raise UsageError(f"{where}: with log, low must be more than 0.")
    return [low, high]


def import_optuna() -> Any:
    """Optuna, or a sentence that says how to install it."""
    optuna = import_library("optuna", "comper search needs Optuna, which is not installed", extra="optuna", end=".")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def run_search(
    search: SettingsSearch,
    out: Path,
    num_tries: int,
    options: RunOptions,
    *,
    command: str,
    run: Runner = run_jobs,
    place: str = "",
    floors: Path | None = None,
) -> list[Try]:
    """Carry tries out until there are so many, and return all of them, the best first. `command` goes on with it."""
    if not 1 <= num_tries * len(search.plan.trials) <= MAX_TRIALS:
        raise UsageError(f"--tries {num_tries}: must be 1 or more, and a search has at most {MAX_TRIALS:,} trials.")
    known = all_floors(floors)
    with explaining_os_errors(out, hint="Choose another --out.", is_typed=True):
        out.mkdir(parents=True, exist_ok=True)
    with RunLock(out, "search"):
        _keep_plan(search, out)
        journal = _Journal(search, out)
        _check_scores(search, out, journal.tries(), known)
        _carry_out(search, out, num_tries, options, journal, known, command=command, run=run, place=place)
        return journal.tries()


def _carry_out(
    search: SettingsSearch,
    out: Path,
    num_tries: int,
    options: RunOptions,
    journal: _Journal,
    known: Floors,
    *,
    command: str,
    run: Runner,
    place: str,
) -> None:
    num_processes = options.num_processes(MAX_TRIALS, options.torch_device())
    at_once = max(1, num_processes // len(search.plan.trials))
    while tries := journal.unfinished(at_once, num_tries):
        possible = [attempt for attempt in tries if _is_possible(search, attempt, out, journal)]
        study = open_study(search.plan_of(possible), out) if possible else None
        refused = run_trials(study, options, command=command, run=run, place=place) if study else {}
        if locked := next((error for error in refused.values() if isinstance(error, LockedError)), None):
            raise locked  # which says nothing of the try: it goes on with the next command
        wrong = {path.absolute(): error for path, error in refused.items()}
        for attempt in possible:
            paths = [trial.path(out) for trial in search.plan_of([attempt]).trials]
            errors = [wrong[path.absolute()] for path in paths if path.absolute() in wrong]
            journal.note(attempt, None if errors else score_of(paths, known), reason=str(errors[0]) if errors else "")


def _check_scores(search: SettingsSearch, out: Path, tries: Sequence[Try], known: Floors) -> None:
    """Refuse a journal whose scores are not those of its runs, or were read against other floors."""
    for attempt in tries:
        paths = [trial.path(out) for trial in search.plan_of([attempt]).trials] if attempt.score is not None else []
        if not all(map(has_begun, paths)):
            print_line(f"{attempt.name}: its runs are gone; its score is what {JOURNAL_FILE} says.")
        elif paths and score_of(paths, known) != attempt.score:
            raise UsageError(
                f"{out / JOURNAL_FILE}: the score of {attempt.name} is not that of its runs. Give the --floors that were given"
                " before, or choose another --out."
            )


def score_of(paths: Sequence[Path], floors: Floors) -> float | None:
    """What a try is worth, as `SCORE` says; None where a trial ended before its first episode."""
    found = []
    for trial in map(read_run, paths):
        last, floor = last_scores(trial), floor_of(trial, floors)
        if not last.size:
            return None
        score, value = float(np.mean(last)), 0.0 if floor is None else floor.value
        found.append((score - value) / abs(value) if value else score)
    return float(np.mean(found))


def _is_possible(search: SettingsSearch, attempt: Try, out: Path, journal: _Journal) -> bool:
    """Whether the settings fit each other and the environments; if not, that is noted."""
    try:
        open_study(search.plan_of([attempt]), out)
    except UsageError as error:
        journal.note(attempt, None, reason=str(error))
        return False
    return True


def _keep_plan(search: SettingsSearch, out: Path) -> None:
    kept = out / PLAN_FILE
    if kept.exists() and read_settings(kept) != read_settings(search.path):
        raise UsageError(f"{out}: holds a search, or a study, of another plan. Choose --out.")
    with explaining_os_errors(kept):
        write_atomically(kept, search.plan.text)


def _mend(path: Path) -> None:
    """Cut a last line that a full disk, or a kill, has left unfinished; what is no journal is refused, and left as it is."""
    if not os.path.lexists(path):
        return
    try:
        content = read_file(path, max_bytes=MAX_JOURNAL_BYTES)
        is_journal = all("op_code" in record for _, record in read_json_lines(path)) and (not content or b"\n" in content)
        reason = "other lines than Optuna's"
    except DamagedFileError as error:
        is_journal, reason = False, str(error)
    if not is_journal:
        raise UsageError(f"{path}: is no journal of a search ({reason}). Choose --out.")
    if content and not content.endswith(b"\n"):
        with explaining_os_errors(path):
            write_atomically(path, content[: content.rindex(b"\n") + 1])


def _is_in(value: Any, given: Any) -> bool:
    """Whether a value is one of the choices, or in the range, of a plan."""
    return value in given if isinstance(given, list) else given["low"] <= value <= given["high"]


class _Held:
    """The lock that Optuna wants; the search holds its folder's. Optuna's own, once its holder was killed, stops all."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class _Journal:
    """What was tried, in Optuna's own file."""

    def __init__(self, search: SettingsSearch, out: Path) -> None:
        self._optuna, self._search = import_optuna(), search
        self._path = out / JOURNAL_FILE
        _mend(self._path)
        with explaining_os_errors(self._path):
            try:
                self._study = self._opened(self._path)
                if self._study.directions != [self._optuna.study.StudyDirection.MAXIMIZE]:
                    raise ValueError("it does not look for the highest score")
                trials = self._study.get_trials(deepcopy=False)
                for trial in trials:
                    self._check(trial, is_last=trial is trials[-1])
            except OSError:
                raise
            except Exception as error:  # Optuna asserts, unpacks and looks up what it reads
                reason = str(error) or type(error).__name__
                raise UsageError(f"{self._path}: is no journal of this search ({reason}). Choose --out.") from None

    def _opened(self, path: Path) -> Any:
        storages = self._optuna.storages
        backend = storages.journal.JournalFileBackend(str(path), lock_obj=_Held())
        storage = storages.JournalStorage(backend)
        name = self._search.plan.name
        return self._optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)

    def _check(self, trial: Any, *, is_last: bool) -> None:
        """Refuse a try that this search has not made; only the last may have been cut off before its settings were chosen."""
        states = self._optuna.trial.TrialState
        names, is_scored = set(trial.params), trial.state == states.COMPLETE
        is_cut_off = trial.state == states.FAIL or (trial.state == states.RUNNING and is_last)
        is_whole = trial.state in (states.RUNNING, states.COMPLETE) and names == set(self._search.ranges)
        if not is_whole and not is_cut_off:
            raise ValueError(f"try {trial.number} is {trial.state.name} with settings {sorted(names)}")
        for name, value in trial.params.items():
            if trial.distributions[name] != self._distribution(name, self._search.ranges[name]):
                raise ValueError(f"try {trial.number} has another range of {name}")
            if not _is_in(value, self._search.ranges[name]):
                raise ValueError(f"try {trial.number} has {name} = {value!r}")
        if is_scored and not math.isfinite(trial.value):
            raise ValueError(f"try {trial.number} has the score {trial.value}")

    def unfinished(self, at_once: int, most: int) -> list[Try]:
        """Tries to carry out next: those cut off before, and new ones up to so many at once and in all."""
        running = self._optuna.trial.TrialState.RUNNING
        for attempt in self._of([running]):
            if set(attempt.settings) != set(self._search.ranges):
                self.note(attempt, None, reason="It was cut off before its settings were chosen.")
        while len(self._study.trials) < most and len(self._of([running])) < at_once:
            self._study.sampler = self._optuna.samplers.TPESampler(seed=len(self._study.trials))
            with explaining_os_errors(self._path):
                self._study.ask({name: self._distribution(name, given) for name, given in self._search.ranges.items()})
        return self._of([running])

    def note(self, attempt: Try, score: float | None, *, reason: str = "") -> None:
        """Write down what a try has come to."""
        state = self._optuna.trial.TrialState
        is_number = score is not None and math.isfinite(score)
        with explaining_os_errors(self._path):
            self._study.tell(attempt.number, score if is_number else None, state.COMPLETE if is_number else state.FAIL)
        told = f"score {score:.4g}" if is_number else f"not scored. {reason or 'No episode ended.'}"
        print_line(f"{attempt.name}: {told}")

    def tries(self) -> list[Try]:
        """Every try, the best first and those without a score last."""
        found = self._of(list(self._optuna.trial.TrialState))
        return sorted(found, key=lambda attempt: (attempt.score is None, -(attempt.score or 0.0), attempt.number))

    def _of(self, states: Sequence[Any]) -> list[Try]:
        return [
            Try(trial.number, {name: self._value(name, value) for name, value in trial.params.items()}, trial.value)
            for trial in self._study.get_trials(deepcopy=False, states=states)
        ]

    def _value(self, name: str, value: Any) -> Any:
        """A number as a person would write it, unless that leaves its range."""
        given = self._search.ranges[name]
        if isinstance(given, list) or not isinstance(value, float):
            return value
        short = float(f"{value:.4g}")
        return short if given["low"] <= short <= given["high"] else value

    def _distribution(self, name: str, given: Any) -> Any:
        kinds = self._optuna.distributions
        if isinstance(given, list):
            return kinds.CategoricalDistribution(given)
        if name in self._search.whole_numbers:
            return kinds.IntDistribution(
                int(given["low"]), int(given["high"]), given.get("log", False), int(given.get("step", 1))
            )
        return kinds.FloatDistribution(float(given["low"]), float(given["high"]), given.get("log", False), given.get("step"))


def require_scored(tries: Sequence[Try]) -> Try:
    """The best of all tries, or an error where none could be scored."""
    if tries[0].score is None:
        raise ComperError("No try could be scored; the lines above say why.")
    return tries[0]

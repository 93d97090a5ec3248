"""Packs finished runs for keeping: what their scores rest on, without weights, and a note that `comper verify` understands.

python -m comper.runs.archive runs/dqn results/dqn.tar.gz
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comper.errors import ComperError, DamagedFileError, UsageError, explaining_os_errors
from comper.runs.files import read_file, write_atomically
from comper.runs.folder import CONFIG_FILE, LEFT_OUT_FILE, LOG_FILES, MANIFEST_FILE, WEIGHTS_FILE
from comper.runs.verify import Verdict, verify

MAX_FILE_BYTES = 1 << 30


def pack(folder: Path, archive: Path) -> int:
    """Write the finished runs below a folder into a .tar.gz and return their number; the same runs give the same bytes."""
    folder = folder.resolve()  # names in an archive begin with the folder's own, never with ".."
    verdicts = [_require_keepable(verdict) for verdict in verify(folder)]
    if not verdicts:
        raise UsageError(f"No run in {folder}.")
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for verdict in verdicts:
            for name, content in _kept(verdict).items():
                entry = tarfile.TarInfo(str(verdict.path.relative_to(folder.parent) / name))
                entry.size, entry.mode = len(content), 0o644
                tar.addfile(entry, io.BytesIO(content))
    with explaining_os_errors(archive, is_typed=True):
        write_atomically(archive, packed.getvalue())
    return len(verdicts)


def _require_keepable(verdict: Verdict) -> Verdict:
    if verdict.damaged:
        raise DamagedFileError(str(verdict))
    if verdict.manifest is None or not verdict.manifest.is_finished:
        raise UsageError(f"{verdict.path}: not finished, and without its checkpoints it could not be continued.")
    return verdict


def _kept(verdict: Verdict) -> dict[str, bytes]:
    """The files of a run that are kept, and the note on those that are not, with their digests."""
    assert verdict.manifest is not None
    kept = {n: read_file(verdict.path / n, max_bytes=MAX_FILE_BYTES) for n in (CONFIG_FILE, MANIFEST_FILE, *LOG_FILES)}
    left_out: dict[str, Any] = {n: entry for n, entry in verdict.manifest.files.items() if n == WEIGHTS_FILE}
    return kept | ({LEFT_OUT_FILE: (json.dumps(left_out) + "\n").encode()} if left_out else {})


def main(words: Sequence[str]) -> int:
    """Pack, or say in a sentence why not."""
    try:
        if len(words) != 2 or not all(words):
            raise UsageError("Give the folder with the runs, and the archive to write: runs/dqn results/dqn.tar.gz.")
        print(f"{pack(Path(words[0]), Path(words[1]))} runs packed")
    except ComperError as error:
        print(f"comper: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

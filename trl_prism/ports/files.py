"""Files that are whole or not there, and files that say where they are broken."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trl_prism.errors import PrismError


def make_folder(path: Path) -> None:
    """Makes a folder where there is none. Raises [`PrismError`] if it cannot be made or written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise PrismError(f"The folder {path} cannot be written: {error.strerror or error}.") from error


def write_text(path: Path, text: str) -> None:
    """Writes aside, flushes to disk and renames: a reader finds the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """As [`write_text`], for a table of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    pq.write_table(pa.Table.from_pylist([{k: _storable(v) for k, v in row.items()} for row in rows]), part)
    part.replace(path)


def _storable(value: Any) -> Any:
    """Model output may hold lone surrogates, which no UTF-8 file can; they are kept as visible escapes."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value


def read_jsonl(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file. Raises [`PrismError`] naming the first line that is no JSON object."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise PrismError(f"{path} cannot be read as UTF-8 text: {error}.") from error
    rows = []
    # Not `splitlines`, which would also cut at the line separators that JSON text may hold as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise PrismError(f"{path}, line {number}, is not JSON: {error}.") from error
            if not isinstance(row, dict):
                raise PrismError(f"{path}, line {number}, is no object of columns and values: {line[:80]}")
            rows.append(row)
    return rows

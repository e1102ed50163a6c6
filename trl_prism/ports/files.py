"""Files that are whole or not there, and files that say where they are broken."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
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


def nearest_existing(path: Path) -> Path:
    """The path itself if it exists, otherwise the nearest of its parents that does."""
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def write_text(path: Path, text: str) -> None:
    """Writes aside, flushes to disk and renames: a reader finds the old file or the new one, never half of it.

    Raises:
        PrismError: if it cannot be written, on a full disk for instance; the old file is still there.
    """

    def write(part: Path) -> None:
        part.write_text(text, encoding="utf-8", errors="surrogatepass")

    _replace(path, write)


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """As [`write_text`], a line of JSON per row. The whole file is written anew, so it never ends in half a line."""
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """As [`write_text`], for a table of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist([{k: _storable(v) for k, v in row.items()} for row in rows])
    _replace(path, lambda part: pq.write_table(table, part))


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """The rows of a table. Raises [`PrismError`] if it is damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return list(pq.read_table(path).to_pylist())
    except (OSError, pa.ArrowException) as error:
        raise PrismError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def _replace(path: Path, write: Callable[[Path], None]) -> None:
    part = path.with_name(path.name + ".part")
    with one_clear_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write(part)
        flush(part)
        part.replace(path)
        flush(path.parent)


@contextlib.contextmanager
def one_clear_error(path: Path) -> Iterator[None]:
    """Turns what the system says of a write into [`PrismError`], also where a library has wrapped it."""
    try:
        yield
    except PrismError:
        raise
    except Exception as error:  # torch and safetensors have their own errors for a full disk
        reason = error.strerror or str(error) if isinstance(error, OSError) else _cannot_write(path)
        if reason is None:
            raise
        raise PrismError(
            f"{path} cannot be written: {reason}. What was written before is whole; when there is room and it may be "
            "written to, the same command goes on."
        ) from error


def _cannot_write(path: Path) -> str | None:
    """Why a megabyte cannot be written beside a path, or `None` if it can."""
    folder = next(place for place in (path, *path.absolute().parents) if place.is_dir())
    probe = folder / f".probe-{os.getpid()}"
    try:
        probe.write_bytes(b"0" * 2**20)
        flush(probe)
    except OSError as error:
        return error.strerror or str(error)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    return None


def flush(path: Path) -> None:
    """Has the system write a file, or a folder's list of files, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def described(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file, as [`fault_of_files`] compares them."""
    return {"bytes": path.stat().st_size, "sha256": digest(path)}


def fault_of_files(folder: Path, files: dict[str, dict[str, Any]]) -> str | None:
    """What is wrong with files of which size and hash are known, or `None`."""
    for name, wanted in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != wanted["bytes"]:
            return f"{name} has {path.stat().st_size} bytes, not {wanted['bytes']}"
    for name, wanted in files.items():
        if digest(folder / name) != wanted["sha256"]:
            return f"{name} is damaged"
    return None


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

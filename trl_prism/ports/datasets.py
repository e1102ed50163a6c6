"""Data sets of the Hub."""

from collections.abc import Mapping, Sequence
from typing import Any

from trl_prism.errors import PrismError


Row = Mapping[str, Any]


def read_hub(
    hub_id: str, configs: Sequence[str | None], split: str, revision: str | None
) -> tuple[list[Row], dict[str, str | None]]:
    """The rows of a data set on the Hub, its configurations joined, and where exactly they come from.

    Args:
        hub_id (`str`): Its id.
        configs (`Sequence[str | None]`): Its configurations, in this order.
        split (`str`): A split, or several as `train+test`.
        revision (`str`, *optional*): Commit, branch or tag. Without one it is the newest.

    Returns:
        `tuple[list[dict], dict[str, str | None]]`: the rows; and `hub_id`, `config`, `split` and `revision`, which is
        the commit that was read where the cached files tell it.

    Raises:
        PrismError: if it cannot be loaded.
    """
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    rows: list[Row] = []
    commit = revision
    for config in configs:
        try:
            data = load_dataset(hub_id, config, split=split, revision=revision)
        except (OSError, ValueError, DatasetsError) as error:
            raise PrismError(
                f"The data set {hub_id!r} (configuration {config or 'default'}, split {split}, revision "
                f"{revision or 'newest'}) cannot be loaded: {error}. Check the id and the network, or put a file into "
                "`data_dir`."
            ) from error
        rows += list(data)
        commit = commit or _commit(data)
    return rows, {
        "hub_id": hub_id,
        "config": ",".join(filter(None, configs)) or None,
        "split": split,
        "revision": commit,
    }


def _commit(data: Any) -> str | None:
    """The commit that a data set was read from, as its cached files tell it; `None` where they do not."""
    checksums = getattr(data.info, "download_checksums", None) or {}
    found = [url.partition("@")[2].partition("/")[0] for url in checksums if "@" in url]
    return found[0] if found else None

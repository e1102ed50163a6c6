"""A run on a small disk that fills up, or may no longer be written: `disk.py full|read_only MOUNT_POINT`.

Runs in a mount namespace of its own. The last line of its output is JSON: the error of the first attempt, and the
results of the second one.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from trl_prism import self_play
from trl_prism.errors import PrismError
from trl_prism.recipe import config_from_mapping


def main(fault: str, disk: Path) -> None:
    from tests.faults.killing import results
    from tests.faults.test_damage import settings_of

    disk.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", str(disk)], check=True)
    filler = disk / "filler"
    config = config_from_mapping(settings_of(disk / "run"))
    train = self_play.Parts.train

    def disturbed(self, trainer_class, role, *args, **kwargs):
        # In the middle of the Solver's phase, before its first checkpoint.
        if role == "solver" and fault == "full":
            handle = os.open(filler, os.O_WRONLY | os.O_CREAT)
            with contextlib.suppress(OSError):
                while True:
                    os.write(handle, b"0" * 4096)
            os.close(handle)
        if role == "solver" and fault == "read_only":
            run = str(disk / "run")
            subprocess.run(["mount", "--bind", run, run], check=True)
            subprocess.run(["mount", "-o", "remount,bind,ro", run], check=True)
        return train(self, trainer_class, role, *args, **kwargs)

    self_play.Parts.train = disturbed
    try:
        self_play.play(config)
        error = "none"
    except PrismError as found:
        error = f"error: {found}"
    self_play.Parts.train = train
    if fault == "read_only":
        subprocess.run(["umount", str(disk / "run")], check=True)
    filler.unlink(missing_ok=True)
    self_play.play(config)
    print(json.dumps({"error": error, "results": results(disk / "run")}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

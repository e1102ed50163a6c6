"""Runs Prism: `accelerate launch recipes/prism.py --config recipes/<model>/<variant>.yaml [--field value]`."""

import os
import sys
import warnings


def main(args: list[str] | None = None) -> int:
    # One thread per process: several share the cores, and more threads than cores make steps many times slower.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    from trl_prism.errors import PrismError
    from trl_prism.recipe import parse_config

    try:
        config = parse_config(sys.argv[1:] if args is None else args)
        from trl_prism.console import quiet_libraries
        from trl_prism.self_play import play

        quiet_libraries()
        play(config)
    except PrismError as error:
        sys.stderr.write(f"\nerror: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

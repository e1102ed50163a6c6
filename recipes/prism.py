"""Runs Prism: `accelerate launch recipes/prism.py --config recipes/<model>/<variant>.yaml [--field value]`."""

import sys

from trl_prism.cli import guarded


def main() -> None:
    from trl_prism.console import quiet_libraries
    from trl_prism.ports.ranks import leave
    from trl_prism.recipe import parse_config
    from trl_prism.self_play import play

    config = parse_config(sys.argv[1:])
    quiet_libraries()
    play(config)
    leave()


if __name__ == "__main__":
    sys.exit(guarded(main))

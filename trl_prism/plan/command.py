"""`trl-prism plan`: what a recipe will do and need, before it costs anything."""

import argparse
import json
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from trl_prism.config import ROLES, PrismConfig, mapping
from trl_prism.console import plain_table
from trl_prism.console import say as say_wide
from trl_prism.domains import load_domain
from trl_prism.errors import PrismError
from trl_prism.plan.sizes import Launch, disk_of, memory_of, planned_args, shape_of, trained_parameters
from trl_prism.plan.stages import batches_of, rates_of, stages_of
from trl_prism.ports.files import nearest_existing
from trl_prism.ports.ranks import state
from trl_prism.rates import endless_warmup, lost_updates
from trl_prism.recipe import parse_config


GIB = 2**30
WIDTH = 100

# Minutes of a round on one node of 8 H100, with the authors' code. Source: arXiv:2603.13309.
PAPER_MINUTES = {"Questioner phase": 38.0, "embedding": 2.4, "pool and votes": 25.0, "Solver phase": 82.0}
PAPER_SETTINGS = {"questioner": {"max_steps": 6, "prompts_per_step": 512}, "solver": {"max_steps": 20}}

PROG = "trl-prism plan"


def run(args: Sequence[str]) -> None:
    """Prints the plan of the recipe that the arguments name."""
    parser = argparse.ArgumentParser(prog=PROG, allow_abbrev=False, description=__doc__, epilog=_EPILOG)
    parser.add_argument("--accelerate_config", help="launch configuration; one process without it")
    parser.add_argument("--gpu_memory", type=float, default=80.0, help="GiB of one card")
    parser.add_argument("--run_dir", help="a run whose measured times are used")
    parser.add_argument("--generate_rate", type=float, help="generated tokens per second and rank")
    parser.add_argument("--train_rate", type=float, help="trained tokens per second and rank")
    parser.add_argument("--json", action="store_true", help="as JSON")
    own, rest = parser.parse_known_args(list(args))
    logging.getLogger("transformers").setLevel(logging.ERROR)
    state(cpu=True)
    config = parse_config(rest)
    launch = launch_of(own.accelerate_config)
    found = plan(
        config,
        launch,
        gpu_memory=own.gpu_memory,
        run_dir=own.run_dir,
        generate_rate=own.generate_rate,
        train_rate=own.train_rate,
    )
    if own.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        show(found)


_EPILOG = "Everything else is a recipe and its overrides: --config recipe.yaml --solver.max_steps 10"


def launch_of(path: str | None) -> Launch:
    """Ranks and kind of an accelerate configuration.

    Raises:
        PrismError: if it cannot be read.
    """
    if path is None:
        return Launch()
    try:
        settings = mapping(yaml.safe_load(Path(path).read_text(encoding="utf-8")), name="accelerate_config")
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PrismError(f"The accelerate configuration {path} cannot be read: {error}") from error
    number = int(settings.get("num_processes", 1))
    if settings.get("distributed_type") == "DEEPSPEED":
        deepspeed = settings.get("deepspeed_config") or {}
        stage = deepspeed.get("zero_stage")
        if "deepspeed_config_file" in deepspeed:
            content = json.loads(Path(deepspeed["deepspeed_config_file"]).read_text(encoding="utf-8"))
            stage = content["zero_optimization"]["stage"]
        return Launch(number, f"zero{stage}")
    if settings.get("distributed_type") == "FSDP":
        return Launch(number, f"fsdp{(settings.get('fsdp_config') or {}).get('fsdp_version', 1)}")
    return Launch(number, "ddp" if number > 1 else "none")


def plan(
    config: PrismConfig,
    launch: Launch,
    *,
    gpu_memory: float = 80.0,
    run_dir: str | None = None,
    generate_rate: float | None = None,
    train_rate: float | None = None,
) -> dict[str, Any]:
    """The whole plan as JSON holds it; bytes are numbers, times are seconds.

    Args:
        config ([`~trl_prism.config.PrismConfig`]): The recipe.
        launch ([`~trl_prism.plan.sizes.Launch`]): How it is launched.
        gpu_memory (`float`, *optional*, defaults to `80.0`): GiB of one card.
        run_dir (`str`, *optional*): A run whose times are taken.
        generate_rate, train_rate (`float`, *optional*): Tokens per second and rank, where they are known.
    """
    shape = shape_of(config.model_name_or_path, **config.base_kwargs)
    ranks = launch.num_ranks
    held_out, doubts = _held_out(config)
    stages = stages_of(config, num_held_out=held_out, num_ranks=ranks)
    memory = {role: memory_of(config, role, shape, launch) for role in ROLES}
    disk = disk_of(config, shape, launch)
    seconds, source = _seconds(config, stages, ranks, run_dir, generate_rate, train_rate)
    doubts += _doubts(config, launch, memory, disk.total, gpu_memory)
    return {
        "model": {
            "path": config.model_name_or_path,
            "num_parameters": shape.num_parameters,
            "num_trained": trained_parameters(config, shape),
        },
        "launch": {"num_ranks": ranks, "kind": launch.kind},
        "num_rounds": config.num_rounds,
        "stages": [vars(stage) for stage in stages],
        "batches": {role: batches_of(config, role, num_ranks=ranks) for role in ROLES},
        "learning_rates": {role: rates_of(config, role, num_ranks=ranks) for role in ROLES},
        "memory_per_rank": {
            role: {
                "total": found.total,
                **{name: {"bytes": size, "formula": formula} for name, (size, formula) in found.parts.items()},
            }
            for role, found in memory.items()
        },
        "gpu_memory": int(gpu_memory * GIB),
        "disk": vars(disk),
        "seconds_per_round": seconds,
        "times_from": source,
        "doubts": doubts,
    }


def _held_out(config: PrismConfig) -> tuple[int | None, list[str]]:
    try:
        domain = load_domain(config.domain, **mapping(config.domain_kwargs))
        return len(domain.held_out_problems()[: config.max_eval_problems]), []
    except PrismError as error:
        return None, [f"The domain's held-out problems cannot be read here: {error}"]


def _seconds(
    config: PrismConfig,
    stages: Sequence[Any],
    ranks: int,
    run_dir: str | None,
    generate_rate: float | None,
    train_rate: float | None,
) -> tuple[dict[str, float], str]:
    if run_dir is not None:
        return measured_seconds(Path(run_dir)), f"measured in {run_dir}, mean over its rounds"
    if generate_rate and train_rate:
        found = {
            stage.name: stage.tokens / generate_rate / ranks + stage.trained_tokens / train_rate / ranks
            for stage in stages
        }
        return found, f"stated: {generate_rate:g} generated and {train_rate:g} trained tokens per second and rank"
    paper = all(
        config.role_settings(role).get(name) == value
        for role, wanted in PAPER_SETTINGS.items()
        for name, value in wanted.items()
    )
    if paper and "Qwen3-4B" in config.model_name_or_path:
        return (
            {name: 60 * minutes for name, minutes in PAPER_MINUTES.items()},
            "arXiv:2603.13309, the authors' code on 8 H100; this code has not been measured at this size",
        )
    return {}, "unknown: give --generate_rate and --train_rate, or --run_dir of a run of this size"


def measured_seconds(run_dir: Path) -> dict[str, float]:
    """Mean seconds of each stage over the rounds of a run, from its journal.

    Raises:
        PrismError: if it has none.
    """
    names = {
        "questioner": "Questioner phase",
        "pool": "pool and votes",
        "solver": "Solver phase",
        "report": "evaluation",
    }
    found: dict[str, list[float]] = {}
    for file in sorted((run_dir / "journal").glob("[0-9]*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        if record["round"] > 0:
            found.setdefault(names.get(record["stage"], "evaluation"), []).append(record["facts"]["seconds"])
    if not found:
        raise PrismError(f"{run_dir} holds no journal of a finished stage; `run_dir` must be a run's folder.")
    return {name: sum(values) / len(values) for name, values in found.items()}


def _doubts(config: PrismConfig, launch: Launch, memory: dict[str, Any], disk: int, gpu_memory: float) -> list[str]:
    """What a reader should look at twice."""
    doubts = []
    for role in ROLES:
        share = memory[role].total / (gpu_memory * GIB)
        if share > 0.8:
            largest = sorted(memory[role].parts.items(), key=lambda part: -part[1][0])[:2]
            doubts.append(
                f"The {role} needs about {amount(memory[role].total)} a rank, {share:.0%} of a card of "
                f"{gpu_memory:g} GiB; above 80 % it may run out. Largest: {', '.join(name for name, _ in largest)}."
            )
        batch = batches_of(config, role, num_ranks=launch.num_ranks)
        if batch["completions_per_update"] >= 8192:
            doubts.append(
                f"An update of the {role} takes {batch['completions_per_update']} completions: "
                f"{batch['completions_per_forward_pass']} a forward pass x "
                f"{batch['forward_passes_per_update_and_rank']} accumulated x {launch.num_ranks} ranks. Is that "
                "meant? `prompts_per_update` makes smaller ones."
            )
        args = planned_args(config, role, num_ranks=launch.num_ranks)
        warning = endless_warmup(role, args, num_rounds=config.num_rounds, over_run=config.lr_schedule == "run")
        lost = lost_updates(role, args, config=config, kind=launch.kind)
        doubts += filter(None, (warning, lost))
    place = nearest_existing(Path(config.output_dir).absolute())
    free = shutil.disk_usage(place).free
    if disk > free:
        doubts.append(f"The run keeps up to {amount(disk)}, and {os.fspath(place)} has {amount(free)} free.")
    return doubts


def show(found: dict[str, Any]) -> None:
    """The plan as tables of at most 100 columns."""
    model, launch = found["model"], found["launch"]
    trained = "" if model["num_trained"] == model["num_parameters"] else f", {model['num_trained']:,} of them trained"
    say(f"{model['path']}: {model['num_parameters']:,} parameters{trained}")
    say(f"{launch['num_ranks']} ranks ({launch['kind']}), {found['num_rounds']} rounds after the base model's pool\n")

    table = plain_table("stage of a round", "updates", "prompts", "completions", "votes", "tokens at most")
    for stage in found["stages"]:
        numbers = [stage[name] for name in ("updates", "prompts", "completions", "votes", "tokens")]
        table.add_row(stage["name"], *(f"{number:,}" if number else "-" for number in numbers))
    say(table)

    say("A generation batch is drawn at once; its updates each take a part of it.")
    _by_role(found["batches"], lambda value: f"{value:,}")
    say("Learning rates, over all rounds")
    _by_role(found["learning_rates"], lambda value: f"{value:g}")

    say("Memory per rank (P parameters, T trained, B completions a pass, S tokens, L layers, H hidden, V words)")
    table = plain_table("part", *ROLES, "formula", right=2)
    parts = list(dict.fromkeys(name for role in ROLES for name in found["memory_per_rank"][role] if name != "total"))
    for name in parts:
        cells = [found["memory_per_rank"][role].get(name) for role in ROLES]
        formulas = dict.fromkeys(cell["formula"] for cell in cells if cell)
        table.add_row(name, *(amount(cell["bytes"]) if cell else "-" for cell in cells), "; ".join(formulas))
    totals = [found["memory_per_rank"][role]["total"] for role in ROLES]
    table.add_row("at most at a time", *(amount(total) for total in totals), f"of {amount(found['gpu_memory'])}")
    say(table)

    disk = found["disk"]
    say(
        f"Disk: at most {amount(disk['total'])} ({amount(disk['model'])} a saved model, "
        f"{amount(disk['checkpoint'])} a checkpoint)"
    )
    seconds = found["seconds_per_round"]
    if seconds:
        each = ", ".join(f"{name} {value / 60:.1f}" for name, value in seconds.items())
        hours = sum(seconds.values()) * found["num_rounds"] / 3600
        say(f"Time: {hours:.1f} hours for {found['num_rounds']} rounds; minutes a round: {each}")
    say(f"Times: {found['times_from']}")
    for doubt in found["doubts"]:
        say(f"\nDoubtful: {doubt}")


def amount(size: float) -> str:
    """Bytes in the unit that fits them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:,.1f} {unit}"
        size /= 1024
    raise AssertionError


def say(message: Any) -> None:
    say_wide(message, width=WIDTH)


def _by_role(rows: dict[str, dict[str, Any]], form: Any) -> None:
    table: Table = plain_table("", *rows)
    for name in next(iter(rows.values())):
        table.add_row(name.replace("_", " "), *(form(row[name]) for row in rows.values()))
    say(table)

"""Reads a recipe and the command line into one configuration.

From strongest to weakest: the command line (`--questioner.max_steps 2` before `--max_steps 2`), a role's mapping
(`questioner:` and `solver:`), the shared settings at the file's top level, the role's defaults, TRL's own.
"""

import argparse
import dataclasses
import difflib
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import yaml
from trl import GRPOConfig, TrlParser

from trl_prism.config import ROLES, PrismConfig, RoleSettings, mapping
from trl_prism.errors import PrismError, all_messages, raise_all


# What is always set for a role and therefore cannot be asked for.
_OURS = {
    "output_dir": "it is one folder per round and role under the run's `output_dir`",
    "generation_batch_size": "set `prompts_per_step`, which counts prompts over all ranks",
    "gradient_accumulation_steps": "set `prompts_per_update`, it is derived",
    "steps_per_generation": "set `prompts_per_step` and `prompts_per_update`, it is derived",
    "seed": "set the run's `seed`; each role and round has its own seed derived from it",
    "data_seed": "set the run's `seed`",
    "num_train_epochs": "set `max_steps`",
    "resume_from_checkpoint": "it is said for the whole run, at the top level",
    "save_only_model": "a checkpoint must hold all that a phase goes on from",
    "ignore_data_skip": "a phase goes on with the data that it had come to",
    "shuffle_dataset": "the order is drawn before a phase begins, so that it can go on in it",
    "auto_find_batch_size": "set `per_device_train_batch_size`",
    "model_init_kwargs": "set `dtype` and `attn_implementation`",
    "trust_remote_code": "set the run's `trust_remote_code`",
    "push_to_hub": "pushing is not part of a phase",
    "eval_strategy": "the Solver is evaluated after each round",
    "remove_unused_columns": "it must stay false: the rewards need the columns",
}


# Every field of GRPOConfig and RoleSettings, unset unless given.
def _role_fields() -> dict[str, Any]:
    hints = get_type_hints(GRPOConfig)
    fields = {f.name: hints[f.name] for f in dataclasses.fields(GRPOConfig) if f.init and f.name not in _OURS}
    return {**fields, **get_type_hints(RoleSettings)}


def _help_of(name: str) -> str:
    for owner in (RoleSettings, GRPOConfig):
        for f in dataclasses.fields(owner):
            if f.name == name:
                return str(f.metadata.get("help", ""))
    return ""


SharedSettings = dataclasses.make_dataclass(
    "SharedSettings",
    [
        (name, hint, field(default=None, metadata={"help": _help_of(name)}))
        for name, hint in _role_fields().items()
        if name not in {f.name for f in dataclasses.fields(PrismConfig)}
    ],
)


def config_from_mapping(settings: Mapping[str, Any]) -> PrismConfig:
    """The configuration of a mapping that holds what a recipe's YAML file holds."""
    return _build(dict(settings), {}, {role: {} for role in ROLES})


def parse_config(args: Sequence[str]) -> PrismConfig:
    """Reads `--config recipe.yaml [--field value] [--role.field value]`.

    Raises:
        PrismError: for a file that is missing or no mapping, an unknown key anywhere (with the nearest known one), or
            a value that is not of its field's type.
    """
    if "-h" in args or "--help" in args:
        _PARSER.print_help()
        sys.exit(0)
    path, shared, roles = _split_arguments(args)
    settings: dict[str, Any] = {}
    if path is not None:
        settings = _read_yaml(path)
        for key, value in mapping(settings.pop("env", None), name="env").items():
            os.environ[key] = str(value)
    return _build(settings, shared, roles)


Parsed = TypeVar("Parsed")


def parse_dataclass(cls: type[Parsed], args: Sequence[str], *, prog: str) -> Parsed:
    """Any dataclass from `--config file.yaml` and the command line, with the same care as a recipe.

    Raises:
        PrismError: for an unknown key, with the nearest known one, or a value that is not of its field's type.
    """
    parser = _Parser(cls, prog=prog)
    names = [f.name for f in dataclasses.fields(cls) if f.init]  # type: ignore[arg-type]
    if "-h" in args or "--help" in args:
        parser.print_help()
        sys.exit(0)
    words = [word for word in args if word.startswith("--")]
    for word in words:
        _check_key(word[2:].partition("=")[0].replace("-", "_"), [*names, "config"], where="--")
    args = [part for word in args for part in (word.split("=", 1) if word.startswith("--config=") else [word])]
    path = next((args[i + 1] for i, word in enumerate(args[:-1]) if word == "--config"), None)
    settings = _read_yaml(path) if path is not None else {}
    rest = [word for i, word in enumerate(args) if word != "--config" and (i == 0 or args[i - 1] != "--config")]
    for key in settings:
        _check_key(str(key), names, where="")
    parser.set_defaults_with_config(**{key: _convert(key, value, parser) for key, value in settings.items()})
    try:
        return parser.parse_args_into_dataclasses(args=rest, look_for_args_file=False)[0]
    except (_ArgumentError, ValueError) as error:
        raise PrismError(str(error)) from None


class _StrictLoader(yaml.SafeLoader):
    """Safe, and refuses a key that is given twice, of which YAML would silently take the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: list[Any] = []
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":  # `<<: *shared`, whose keys may be overridden
                continue
            name = self.construct_object(key, deep=True)
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name!r} is given twice", key.start_mark)
            seen.append(name)
        return super().construct_mapping(node, deep=deep)


def _read_yaml(path: str) -> dict[str, Any]:
    try:
        settings = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_StrictLoader) or {}
    except OSError as error:
        raise PrismError(f"The recipe {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise PrismError(f"The recipe {path} is no UTF-8 text (byte {error.start}). Save it as UTF-8.") from error
    except yaml.YAMLError as error:
        raise PrismError(f"The recipe {path} is not YAML: {error}") from error
    if not isinstance(settings, dict):
        raise PrismError(f"The recipe {path} must hold a mapping of names to values.")
    return settings


def _split_arguments(args: Sequence[str]) -> tuple[str | None, dict[str, list[str]], dict[str, dict[str, list[str]]]]:
    """The recipe's path, and the words given for each field: of the run, and of each role."""
    path: str | None = None
    shared: dict[str, list[str]] = {}
    roles: dict[str, dict[str, list[str]]] = {role: {} for role in ROLES}
    wholes: dict[str, list[str]] = {}
    values: list[str] | None = None
    for word in args:
        if not word.startswith("--"):
            if values is None:
                raise PrismError(f"Unexpected {word!r} on the command line; fields are given as --name value.")
            values.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        values = [value] if equals else []
        role, dot, key = name.partition(".")
        if name in ROLES:
            wholes[name] = values
        elif dot and role in ROLES:
            _check_key(key, _role_names(), where=f"--{role}.")
            roles[role][key] = values
        else:
            _check_key(name, [*_top_names(), "config"], where="--")
            shared[name] = values
    for name, texts in wholes.items():
        if not texts:
            raise PrismError(f"`--{name}` takes a mapping, as '{{max_steps: 2}}'; or use --{name}.max_steps 2.")
        for key, value in mapping(" ".join(texts), name=f"--{name}").items():
            _check_key(str(key), _role_names(), where=f"--{name}.")
            roles[name].setdefault(str(key), value if isinstance(value, list) else [str(value)])
    if "config" in shared:
        found = shared.pop("config")
        if len(found) != 1:
            raise PrismError(f"`--config` takes one path, got {len(found)}.")
        path = found[0]
    return path, shared, roles


def _top_names() -> list[str]:
    own = [f.name for f in dataclasses.fields(PrismConfig) if f.init]
    return own + [f.name for f in dataclasses.fields(SharedSettings)]


def _role_names() -> list[str]:
    return list(_role_fields())


def _check_key(key: str, known: Sequence[str], *, where: str) -> None:
    if key in known:
        return
    if key in _OURS:
        raise PrismError(f"`{where}{key}` cannot be set: {_OURS[key]}.")
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    raise PrismError(f"Unknown setting `{where}{key}`." + (f" Did you mean `{where}{near[0]}`?" if near else ""))


def _build(
    settings: dict[str, Any], command_line: Mapping[str, list[str]], roles: Mapping[str, Mapping[str, list[str]]]
) -> PrismConfig:
    """One configuration out of a recipe's mapping and the command line, by precedence."""
    top, messages = _converted(settings, _top_names(), _PARSER, where="")
    given_to_roles = {}
    for role in ROLES:
        try:
            given = mapping(top.get(role), name=role)
        except PrismError:
            given = {}  # said already
        # What the command line says for both roles is stronger than what the recipe says for one.
        kept = {key: value for key, value in given.items() if key not in command_line}
        given_to_roles[role], found = _converted(kept, _role_names(), _ROLE_PARSER, where=f"{role}.")
        messages += found
    raise_all(messages, what="settings cannot be read")
    words = [word for key, values in command_line.items() for word in _as_words(key, values)]
    try:
        _PARSER.set_defaults_with_config(**dict.fromkeys(_top_names()))  # forget an earlier call's recipe
        for own in dataclasses.fields(PrismConfig):
            if own.init and own.name not in top:
                default = own.default_factory() if own.default_factory is not dataclasses.MISSING else own.default
                top[own.name] = None if default is dataclasses.MISSING else default
        _PARSER.set_defaults_with_config(**top)
        config, shared = _PARSER.parse_args_into_dataclasses(args=words, look_for_args_file=False)
    except (_ArgumentError, ValueError) as error:  # TRL's parser raises ValueError for words that fit nowhere
        raise PrismError(str(error)) from None
    for name in ("model_name_or_path", "output_dir"):
        if getattr(config, name) is None:
            raise PrismError(f"`{name}` is missing; give it in the recipe or as --{name}.")

    config.shared = {key: value for key, value in dataclasses.asdict(shared).items() if value is not None}
    for role in ROLES:
        merged = given_to_roles[role]
        for key, words_of_key in roles[role].items():
            try:
                parsed = _ROLE_PARSER.parse_args_into_dataclasses(
                    args=_as_words(key, words_of_key), look_for_args_file=False
                )[0]
            except (_ArgumentError, ValueError) as error:
                raise PrismError(f"{error} (for `--{role}.{key}`)") from None
            merged[key] = getattr(parsed, key)
        setattr(config, role, merged)
    holders = {"": {**vars(config), **config.shared}, **{f"{role}.": getattr(config, role) for role in ROLES}}
    raise_all(
        [
            f"`{where}{key}` is {value}; it must be a finite number."
            for where, holder in holders.items()
            for key, value in holder.items()
            for number in (value if isinstance(value, list) else [value])
            if isinstance(number, float) and not math.isfinite(number)
        ],
        what="settings are no numbers",
    )
    return config


def _converted(
    settings: Mapping[str, Any], known: Sequence[str], parser: "TrlParser", *, where: str
) -> tuple[dict[str, Any], list[str]]:
    """The values of known keys as their fields' types, and what is wrong with the others."""
    values: dict[str, Any] = {}

    def convert(key: Any) -> None:
        _check_key(str(key), known, where=where)
        values[key] = _convert(key, settings[key], parser, where=where)

    return values, all_messages(*(lambda key=key: convert(key) for key in settings))


def _as_words(key: str, values: list[str]) -> list[str]:
    """A field as argparse takes it: `-1e-3` on its own would pass for the name of another one."""
    return [f"--{key}={values[0]}"] if len(values) == 1 else [f"--{key}", *values]


class _ArgumentError(Exception):
    pass


class _Parser(TrlParser):
    """TRL's parser; a wrong value raises instead of ending the process, and names may not be abbreviated."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> Any:
        raise _ArgumentError(message)


def _parser() -> _Parser:
    return _Parser((PrismConfig, SharedSettings), prog="recipes/prism.py")


def _role_parser() -> _Parser:
    fields = [(name, hint, field(default=None)) for name, hint in _role_fields().items()]
    return _Parser(dataclasses.make_dataclass("RoleArguments", fields))


# The types as they were written, before argparse had its way with them; and what has a default that is not null.
_HINTS = {**_role_fields(), **get_type_hints(PrismConfig)}
_NEVER_NULL = {
    f.name
    for f in dataclasses.fields(PrismConfig)
    if f.init and (f.default is not None or f.default_factory is not dataclasses.MISSING)
}
_PARSER = _parser()
_ROLE_PARSER = _role_parser()


def _convert(key: str, value: Any, parser: TrlParser, *, where: str = "") -> Any:
    """A YAML value as its field's type: YAML 1.1 reads `5e-6` as text, and `1` stands for 1.0 as well."""
    action = next(action for action in parser._actions if action.dest == key)
    hint = str(_HINTS.get(key, ""))
    if value is None:
        if key in _NEVER_NULL:
            raise PrismError(f"`{where}{key}` is empty; give it a value, or leave the line out for its default.")
        return None
    if isinstance(value, dict):
        if "dict" not in hint:
            wanted = "a list" if action.nargs == "+" else "a single value"
            raise PrismError(f"`{where}{key}` is a mapping; it must be {wanted}.")
        return _numbers(value)
    if isinstance(value, list):
        if "list" not in hint and action.nargs != "+":
            wanted = "a mapping of names to values" if "dict" in hint else "a single value"
            raise PrismError(f"`{where}{key}` is a list; it must be {wanted}.")
        return [_convert_one(key, item, action, where=where) for item in value]
    if ("dict" in hint and "str" not in hint.replace("dict[str", "")) or (key in ROLES and not isinstance(value, str)):
        raise PrismError(f"`{where}{key}` is {value!r}; it must be a mapping of names to values.")
    if action.nargs == "+" and "str" not in hint.replace("list[str]", ""):
        raise PrismError(f"`{where}{key}` is {value!r}; it must be a list, as {_EXAMPLES.get(action.type, '[a, b]')}.")
    return _convert_one(key, value, action, where=where)


# Lists as a message shows them, by the type of what they hold.
_EXAMPLES = {float: "[0.3, 0.9]", int: "[1, 2]"}

# What YAML 1.1 reads as text and everybody else as a number.
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


def _numbers(value: Any) -> Any:
    """A nested value in which texts such as `5e-6` are numbers."""
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def _convert_one(key: str, value: Any, action: argparse.Action, *, where: str) -> Any:
    wanted = action.type
    if isinstance(value, list | dict):
        raise PrismError(f"`{where}{key}` holds {value!r}; it must hold single values.")
    if wanted in (int, float) and isinstance(value, bool):
        raise PrismError(f"`{where}{key}` is {value}; it must be a number.")
    if wanted is str and not isinstance(value, str):
        raise PrismError(f"`{where}{key}` is {value!r}; it must be text.")
    try:
        if wanted is not None and (isinstance(value, str) or wanted is float):
            value = wanted(value)  # type: ignore[operator]
    except (ValueError, TypeError, argparse.ArgumentTypeError) as error:
        raise PrismError(f"`{where}{key}` is {value!r}, which does not fit: {error}.") from error
    if wanted is int and not isinstance(value, int):
        raise PrismError(f"`{where}{key}` is {value!r}; it must be a whole number.")
    if getattr(wanted, "__name__", "") == "string_to_bool" and not isinstance(value, bool):
        raise PrismError(f"`{where}{key}` is {value!r}; it must be true or false.")
    if action.choices is not None and value not in action.choices:
        raise PrismError(f"`{where}{key}` is {value!r}; it must be one of {', '.join(map(str, action.choices))}.")
    return value

"""`trl-prism preview`: exactly what each role is shown, and what ends its completions."""

import argparse
import logging
from collections.abc import Sequence
from typing import Any

from trl_prism.config import PrismConfig, mapping
from trl_prism.console import say
from trl_prism.domains import Domain, MalformedQuestion, load_domain
from trl_prism.ports.models import load_frozen, load_tokenizer
from trl_prism.ports.ranks import state
from trl_prism.ports.samplers import SamplingParams, TransformersSampler, encode
from trl_prism.ports.texts import Prompt
from trl_prism.preflight import check_template
from trl_prism.recipe import parse_config


def run(args: Sequence[str]) -> None:
    """Prints the prompts of the recipe that the arguments name."""
    parser = argparse.ArgumentParser(prog="trl-prism preview", allow_abbrev=False, description=__doc__)
    parser.add_argument("--question", help="what the Solver is asked; by default a question of the domain")
    parser.add_argument("--sample", action="store_true", help="draw one completion for each role from the base model")
    own, rest = parser.parse_known_args(list(args))
    logging.getLogger("transformers").setLevel(logging.ERROR)
    state(cpu=False)
    config = parse_config(rest)
    domain = load_domain(config.domain, **mapping(config.domain_kwargs))
    for text in preview(config, domain, question=own.question, sample=own.sample):
        say(text)


def preview(config: PrismConfig, domain: Domain, *, question: str | None = None, sample: bool = False) -> list[str]:
    """What is shown of each role, as paragraphs.

    Args:
        config ([`~trl_prism.config.PrismConfig`]): The recipe.
        domain ([`~trl_prism.domains.base.Domain`]): Its domain.
        question (`str`, *optional*): What the Solver is asked; by default a held-out or reference question.
        sample (`bool`, *optional*, defaults to `False`): Also draw a completion for each, from the base model.
    """
    tokenizer = load_tokenizer(config.model_name_or_path, eos_token=config.eos_token, **config.base_kwargs)
    check_template(tokenizer, domain)
    sampler = _sampler(config, tokenizer) if sample else None
    if question is None:
        question = domain.example_question()
    paragraphs: list[str] = []
    for role, prompt, stop in (
        ("questioner", domain.questioner_prompt(), domain.questioner_stop),
        ("solver", domain.solver_prompt(question), domain.solver_stop),
    ):
        settings = config.role_settings(role)
        params = SamplingParams(
            max_tokens=settings["max_completion_length"],
            temperature=settings["temperature"],
            top_p=settings["top_p"],
            top_k=settings["top_k"],
            stop=tuple(stop),
        )
        paragraphs += _shown(role, prompt, tokenizer, params)
        if sampler is not None:
            [[completion]] = sampler.sample([prompt], num_samples=1, params=params, seed=config.seed)
            paragraphs.append(f"One completion{' (cut off)' if completion.truncated else ''}:\n{completion.text}")
            paragraphs.append(f"Read as: {_read(role, completion.text, domain)}\n")
    return paragraphs


def _shown(role: str, prompt: Prompt, tokenizer: Any, params: SamplingParams) -> list[str]:
    [ids] = encode(tokenizer, [prompt])
    stops = ", ".join(map(repr, params.stop)) or "none"
    return [
        f"=== {role.capitalize()}",
        f"Prompt as text ({len(ids)} tokens; what is encoded, special tokens and all):\n{tokenizer.decode(ids)}",
        f"Prompt as token ids:\n{' '.join(map(str, ids))}",
        f"A completion ends at the end token {tokenizer.eos_token!r} ({tokenizer.eos_token_id}), at a stop string "
        f"({stops}), or after {params.max_tokens} tokens. Temperature {params.temperature}, top_p {params.top_p}, "
        f"top_k {params.top_k or 'all'}.\n",
    ]


def _read(role: str, completion: str, domain: Domain) -> str:
    if role == "solver":
        answer = domain.extract_answer(completion)
        return "no answer" if answer is None else f"the answer {answer!r}"
    try:
        return f"the question {domain.parse_question(completion)!r}"
    except MalformedQuestion as error:
        return f"malformed, {error}"


def _sampler(config: PrismConfig, tokenizer: Any) -> TransformersSampler:
    model = load_frozen(config.model_name_or_path, dtype=config.dtype, **config.base_kwargs)
    return TransformersSampler(model, tokenizer, batch_size=1)

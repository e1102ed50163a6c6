"""Who writes completions outside of TRL's own training loop: the frozen Solver that answers, the Questioner's pool."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from trl_prism.core.seeds import derived_seed
from trl_prism.ports import stopping
from trl_prism.ports.ranks import dealt, is_main, num_ranks
from trl_prism.ports.texts import Prompt


if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How completions are drawn.

    Args:
        max_tokens (`int`): Most new tokens.
        temperature (`float`, *optional*, defaults to `1.0`): 0 means greedy.
        top_p (`float`, *optional*, defaults to `1.0`): Nucleus.
        top_k (`int`, *optional*, defaults to `0`): 0 means all tokens.
        stop (`tuple[str, ...]`, *optional*): Strings that end a completion; they stay in it.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Completion:
    """One drawn completion: its text, and whether it ran into the limit of tokens before it ended."""

    text: str
    truncated: bool


class Sampler(Protocol):
    """Draws `num_samples` completions for each prompt, in the order of the prompts."""

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        num_samples: int,
        params: SamplingParams,
        seed: int,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[list[Completion]]: ...


class Store(Protocol):
    """Keeps the chunks of a long draw, see [`~trl_prism.ports.chunks.ChunkStore`]."""

    def read(self, number: int, prompts: Sequence[Prompt], **how: Any) -> list[list[Completion]] | None: ...

    def write(
        self, number: int, rows: Sequence[Sequence[Completion]], prompts: Sequence[Prompt], **how: Any
    ) -> None: ...


def encode(tokenizer: "PreTrainedTokenizerBase", prompts: Sequence[Prompt]) -> list[list[int]]:
    """Token ids of prompts, exactly as TRL encodes them for training."""
    if not prompts:
        return []
    if isinstance(prompts[0], str):
        return tokenizer(text=list(prompts))["input_ids"]
    return tokenizer.apply_chat_template(list(prompts), add_generation_prompt=True, tokenize=True, return_dict=True)[
        "input_ids"
    ]


class TransformersSampler:
    """Draws with `model.generate`.

    Prompts are batched by length, so that little is padded. Every call draws from its own random stream given by
    `seed` and leaves the process's streams as they were; so the draw does not depend on what happened before it.

    Args:
        model (`PreTrainedModel`): The model; it is not changed.
        tokenizer (`PreTrainedTokenizerBase`): Its tokenizer.
        batch_size (`int`, *optional*, defaults to `64`): Sequences per call of `generate`.
    """

    def __init__(self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", *, batch_size: int = 64):
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        num_samples: int,
        params: SamplingParams,
        seed: int,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[list[Completion]]:
        import torch

        ids = encode(self.tokenizer, prompts)
        # Every sample is one entry: (index of the prompt). Longest first, so that memory peaks at once.
        order = sorted((i for i in range(len(ids)) for _ in range(num_samples)), key=lambda i: -len(ids[i]))
        results: list[list[Completion]] = [[] for _ in ids]
        config = self._generation_config(params)
        device = self.model.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.inference_mode():
            torch.manual_seed(seed)
            for start in range(0, len(order), self.batch_size):
                batch = order[start : start + self.batch_size]
                for index, completion in zip(batch, self._generate([ids[i] for i in batch], config), strict=True):
                    results[index].append(completion)
                if on_progress:
                    on_progress(len(batch))
        return results

    def _generation_config(self, params: SamplingParams) -> Any:
        from transformers import GenerationConfig

        ends = self.model.generation_config.eos_token_id
        ends = [ends] if isinstance(ends, int) else list(ends or [])
        if self.tokenizer.eos_token_id not in ends:
            ends.insert(0, self.tokenizer.eos_token_id)
        draw: dict[str, Any] = {"do_sample": False}
        if params.temperature > 0:
            draw = {
                "do_sample": True,
                "temperature": params.temperature,
                "top_p": params.top_p,
                "top_k": params.top_k,
            }
        return GenerationConfig(
            max_new_tokens=params.max_tokens,
            eos_token_id=ends,
            pad_token_id=_pad_id(self.tokenizer),
            stop_strings=list(params.stop) or None,
            disable_compile=True,
            **draw,
        )

    def _generate(self, ids: Sequence[Sequence[int]], config: Any) -> list[Completion]:
        input_ids, attention_mask = left_pad(ids, pad_id=config.pad_token_id, device=self.model.device)
        out = self.model.generate(
            input_ids=input_ids,
            attention_mask=attention_mask,
            generation_config=config,
            tokenizer=self.tokenizer,
            synced_gpus=False,  # the model is whole on this rank, and other ranks may generate more or less often
        )[:, input_ids.shape[1] :]
        texts = self.tokenizer.batch_decode(out, skip_special_tokens=True)
        # Cut off is what filled all tokens and ends neither in an end token nor in a stop string.
        full = out.shape[1] == config.max_new_tokens
        last = out[:, -1].tolist() if out.shape[1] else [config.pad_token_id] * len(texts)
        ends = {*config.eos_token_id, config.pad_token_id}
        stops = tuple(config.stop_strings or ())
        return [
            Completion(text, full and token not in ends and not (stops and text.endswith(stops)))
            for text, token in zip(texts, last, strict=True)
        ]


class SpreadSampler:
    """A sampler whose work is spread over ranks: every rank asks for the whole list and gets all of it. A collective.

    The draw does not depend on how many ranks there are: the list is cut into chunks of about `batch_size` sequences,
    longest prompts first, and every chunk draws from a random stream of its own.

    Args:
        sampler ([`Sampler`]): This rank's own.
        tokenizer (`PreTrainedTokenizerBase`): Measures lengths.
        batch_size (`int`, *optional*, defaults to `64`): Sequences in a chunk.
        store ([`~trl_prism.ports.chunks.ChunkStore`], *optional*): Keeps chunks as they come; a draw that is repeated
            takes them from there.
    """

    def __init__(
        self,
        sampler: Sampler,
        tokenizer: "PreTrainedTokenizerBase",
        *,
        batch_size: int = 64,
        store: "Store | None" = None,
    ):
        self.sampler = sampler
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.store = store

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        num_samples: int,
        params: SamplingParams,
        seed: int,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[list[Completion]]:
        lengths = [len(ids) for ids in encode(self.tokenizer, prompts)]
        order = sorted(range(len(prompts)), key=lambda i: (-lengths[i], i))
        # Of one prompt at most `batch_size` completions at a time, of several prompts all of each.
        pieces = [min(self.batch_size, num_samples - n) for n in range(0, num_samples, self.batch_size)]
        jobs = [(i, n) for i in order for n in pieces]
        size = max(1, self.batch_size // max(1, num_samples))

        def draw(number: int, chunk: list[tuple[int, int]]) -> list[list[Completion]]:
            stopping.check()
            [n] = {n for _, n in chunk}
            asked = [prompts[i] for i, _ in chunk]
            drawn = self._draw(number, asked, num_samples=n, params=params, seed=derived_seed([seed, number]))
            if on_progress:
                # The other ranks are about as far.
                chunks = -(-len(jobs) // size)
                turn = range(number, min(number + num_ranks(), chunks)) if is_main() else ()
                on_progress(sum(n for k in turn for _, n in jobs[k * size : (k + 1) * size]))
            return drawn

        results: list[list[Completion]] = [[] for _ in prompts]
        for (i, _), completions in zip(jobs, dealt(jobs, size, draw, "sampling"), strict=True):
            results[i] += completions
        return results

    def _draw(self, number: int, prompts: list[Prompt], **how: Any) -> list[list[Completion]]:
        if self.store is None:
            return self.sampler.sample(prompts, **how)
        drawn = self.store.read(number, prompts, **how)
        if drawn is None:
            drawn = self.sampler.sample(prompts, **how)
            self.store.write(number, drawn, prompts, **how)
        return drawn


def left_pad(ids: Sequence[Sequence[int]], *, pad_id: int, device: Any) -> tuple[Any, Any]:
    """Ids and attention mask, both of shape `(batch, longest)`."""
    import torch

    longest = max(len(row) for row in ids)
    input_ids = torch.full((len(ids), longest), pad_id, dtype=torch.long)
    mask = torch.zeros((len(ids), longest), dtype=torch.long)
    for i, row in enumerate(ids):
        input_ids[i, longest - len(row) :] = torch.tensor(row, dtype=torch.long)
        mask[i, longest - len(row) :] = 1
    return input_ids.to(device), mask.to(device)


def _pad_id(tokenizer: "PreTrainedTokenizerBase") -> int:
    return tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id


class LogprobScorer:
    """How likely a frozen model finds given texts. The work is spread over ranks, so all must ask for the same.

    Args:
        model (`PreTrainedModel`): The model; it is not changed.
        tokenizer (`PreTrainedTokenizerBase`): Its tokenizer.
        batch_size (`int`, *optional*, defaults to `64`): Sequences per forward pass.
    """

    def __init__(self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", *, batch_size: int = 64):
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size

    def score(self, prompt: Prompt, completions: Sequence[str]) -> np.ndarray:
        """Mean and lowest log-probability of a completion's tokens after the prompt, shape `(n, 2)`.

        An empty completion has no token and is given minus infinity, twice.
        """
        import torch

        head = encode(self.tokenizer, [prompt])[0]
        tails = [self.tokenizer(text=text, add_special_tokens=False)["input_ids"] for text in completions]
        scores = np.full((len(tails), 2), -np.inf)
        order = sorted((i for i in range(len(tails)) if tails[i]), key=lambda i: -len(tails[i]))

        def score(_: int, batch: list[int]) -> list[tuple[float, float]]:
            longest = max(len(tails[i]) for i in batch)
            input_ids, mask = left_pad(
                [head + tails[i] for i in batch], pad_id=_pad_id(self.tokenizer), device=self.model.device
            )
            with torch.inference_mode():
                logits = self.model(input_ids=input_ids, attention_mask=mask, logits_to_keep=longest + 1).logits
            logprobs = torch.log_softmax(logits[:, :-1].float(), dim=-1)  # (batch, longest, vocabulary)
            picked = logprobs.gather(-1, input_ids[:, -longest:].unsqueeze(-1)).squeeze(-1)
            own = [picked[row, longest - len(tails[i]) :] for row, i in enumerate(batch)]
            return [(row.mean().item(), row.min().item()) for row in own]

        if order:
            scores[order] = dealt(order, self.batch_size, score, "scoring under the base model")
        return scores

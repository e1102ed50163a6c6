"""Completions from OpenAI-compatible servers: `vllm serve`, SGLang, `transformers serve`."""

import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from trl_prism.core.seeds import derived_seed
from trl_prism.errors import PrismError, first_line
from trl_prism.ports.samplers import Completion, SamplingParams, encode
from trl_prism.ports.texts import Prompt


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)


# Who serves the one model that it was started with, by what `/v1/models` says of its owner.
_HOLD_ONE_MODEL = ("vllm", "sglang")


class ServerSampler:
    """Draws from one or several servers that hold the same model.

    Prompts are rendered here and sent as text to `/v1/completions`, so a server sees what the model was trained on. A
    request that fails is tried again with growing pauses; a server that goes on failing is given up, and its work goes
    to the others.

    Args:
        urls (`Sequence[str]`): Addresses, as `http://host:8000/v1`.
        model (`str`): The model's name on the servers.
        tokenizer (`PreTrainedTokenizerBase`): The model's tokenizer.
        max_concurrency (`int`, *optional*, defaults to `64`): Requests at a time and server.
        timeout (`float`, *optional*, defaults to `600.0`): Seconds for one request.
        max_retries (`int`, *optional*, defaults to `4`): How often a request is tried again before its server is given
            up; the pauses grow from half a second to eight.
        all_of_them (`bool`, *optional*, defaults to `True`): Whether every server must answer now, or one suffices.
        api_key (`str`, *optional*): By default what `OPENAI_API_KEY` says, if anything.

    Raises:
        PrismError: if a server does not answer, or does not have the model.
    """

    def __init__(
        self,
        urls: Sequence[str],
        model: str,
        tokenizer: "PreTrainedTokenizerBase",
        *,
        max_concurrency: int = 64,
        timeout: float = 600.0,
        max_retries: int = 4,
        api_key: str | None = None,
        all_of_them: bool = True,
    ):
        try:
            import openai
        except ImportError as error:
            raise PrismError("The engine `server` needs a client: pip install 'trl-prism[server]'.") from error

        if not urls:
            raise PrismError("`server_urls` is empty; the engine `server` needs at least one address.")
        self.openai = openai
        self.model = model
        self.tokenizer = tokenizer
        self.max_concurrency = max_concurrency
        key = api_key or os.environ.get("OPENAI_API_KEY") or "none"
        self.clients = {
            url: openai.OpenAI(base_url=url, api_key=key, timeout=timeout, max_retries=max_retries) for url in urls
        }
        self._alive = list(urls)
        self._lock = threading.Lock()
        self._samples = False
        self._stop_checked: set[str] = set()
        self._without_stop: set[str] = set()
        self.check(all_of_them=all_of_them)

    def check(self, *, all_of_them: bool) -> None:
        """Asks every server whether it is there and has the model.

        Raises:
            PrismError: if one does not answer, where all must, or none does; or if one holds another model and does
                not load what a request names.
        """
        for url in self.clients:
            try:
                entries = self._listed(url, timeout=10, max_retries=1)
            except self.openai.OpenAIError as error:
                if all_of_them:
                    raise PrismError(
                        f"The server {url} does not answer ({_reason(error)}). Start it, or correct the address."
                    ) from error
                self._give_up(url, error)
                continue
            # `transformers serve` lists what it has in its cache and loads any model that it is asked for.
            fixed = [entry.id for entry in entries if entry.owned_by in _HOLD_ONE_MODEL]
            if fixed and self.model not in fixed:
                raise PrismError(
                    f"The server {url} holds {', '.join(fixed)}, not {self.model}. Start it with that model and "
                    "run the same command, or use `transformers serve`, which loads what a request names: the Solver "
                    "is another model in every round."
                )
        self._servers()

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        num_samples: int,
        params: SamplingParams,
        seed: int,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[list[Completion]]:
        texts = [self._rendered(prompt) for prompt in prompts]
        self._take_back()
        if texts and params.temperature > 0:
            self._check_sampling(texts[0])
        if texts and params.stop:
            self._check_stop(texts[0], params.stop)
        results: list[list[Completion]] = [[] for _ in prompts]
        left: queue.Queue[int] = queue.Queue()
        for i in range(len(prompts)):
            left.put(i)
        failures: list[BaseException] = []

        def work(url: str) -> None:
            while not failures:
                try:
                    i = left.get_nowait()
                except queue.Empty:
                    return
                try:
                    while len(results[i]) < num_samples:
                        # A server may give fewer completions than it was asked for: it is asked again.
                        drawn = self._ask(
                            url, texts[i], num_samples - len(results[i]), params, [seed, i, len(results[i])]
                        )
                        results[i] += drawn
                        if on_progress:
                            on_progress(len(drawn))
                except (
                    self.openai.APIConnectionError,
                    self.openai.InternalServerError,
                    self.openai.RateLimitError,
                ) as error:
                    left.put(i)
                    self._give_up(url, error)
                    return
                except Exception as error:
                    failures.append(error)
                    return

        while not left.empty() and not failures:
            # In turn, so that a short list of questions does not all go to the first server.
            urls = self._servers() * min(self.max_concurrency, max(1, left.qsize()))
            with ThreadPoolExecutor(len(urls), thread_name_prefix="server") as pool:
                list(pool.map(work, urls))
        if failures:
            error = failures[0]
            raise (
                error if isinstance(error, PrismError) else PrismError(f"A server refused a request: {_reason(error)}")
            ) from error
        return results

    def _check_sampling(self, text: str) -> None:
        """Raises [`PrismError`] if a server gives the same completion whatever the seed: votes would all agree."""
        if self._samples:
            return
        probe = SamplingParams(max_tokens=16, temperature=2.0)
        for url in self._servers():
            try:
                drawn = [self._ask(url, text, 1, probe, [k])[0].text for k in range(4)]
            except self.openai.OpenAIError as error:
                raise PrismError(f"The server {url} refused a request: {_reason(error)}") from error
            if len(set(drawn)) == 1:
                raise PrismError(
                    f"The server {url} gives the same completion for every seed at temperature 2: it does not sample, "
                    "and all votes would agree. `transformers serve` samples only if the model's "
                    "generation_config.json has `do_sample: true`."
                )
        self._samples = True

    def _check_stop(self, text: str, stop: tuple[str, ...]) -> None:
        """Finds the servers that fail on stop strings, as `transformers serve` does with a word-level tokenizer.

        They are asked without, and what they write after a stop string is cut off here: the same, at more tokens.
        """
        probe = SamplingParams(max_tokens=1, temperature=0, stop=stop)
        for url in [url for url in self._servers() if url not in self._stop_checked]:
            try:
                self._ask(url, text, 1, probe, [0])
            except (self.openai.InternalServerError, self.openai.BadRequestError) as error:
                logger.warning("The server %s fails on stop strings (%s); they are cut here.", url, _reason(error))
                self._without_stop.add(url)
            except self.openai.APIConnectionError as error:
                self._give_up(url, error)
            except self.openai.OpenAIError as error:
                raise PrismError(f"The server {url} refused a request: {_reason(error)}") from error
            self._stop_checked.add(url)

    def _servers(self) -> list[str]:
        with self._lock:
            if not self._alive:
                raise PrismError(
                    f"None of the servers answers any more: {', '.join(self.clients)}. Start them again and run the "
                    "same command."
                )
            return list(self._alive)

    def _listed(self, url: str, **options: Any) -> list[Any]:
        """The models that a server lists. Raises the client's error if it does not answer."""
        try:
            return list(self.clients[url].with_options(**options).models.list())
        except (self.openai.InternalServerError, self.openai.NotFoundError) as error:
            # It is there, but has no list: `transformers serve` of some versions without a cache of the Hub.
            logger.info("%s lists no models (%s).", url, _reason(error))
            return []

    def _take_back(self) -> None:
        """Counts on a server again that was given up and answers now: it was started anew."""
        for url in [url for url in self.clients if url not in self._alive]:
            try:
                self._listed(url, timeout=5, max_retries=0)
            except self.openai.OpenAIError:
                continue
            logger.warning("The server %s answers again.", url)
            self._alive.append(url)

    def _give_up(self, url: str, error: Exception) -> None:
        with self._lock:
            if url in self._alive:
                self._alive.remove(url)
                logger.warning("The server %s is given up (%s); %d are left.", url, _reason(error), len(self._alive))

    def _ask(self, url: str, text: str, n: int, params: SamplingParams, words: list[int]) -> list[Completion]:
        extra: dict[str, Any] = {"top_k": params.top_k} if params.top_k and params.temperature > 0 else {}
        response = self.clients[url].completions.create(
            model=self.model,
            prompt=text,
            n=n,
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            stop=None if url in self._without_stop else list(params.stop) or None,
            seed=derived_seed(words),
            extra_body=extra or None,
        )
        if not response.choices:
            raise PrismError(f"The server {url} gave no completion.")
        return [
            _until_stop(Completion(choice.text, choice.finish_reason == "length"), params.stop)
            for choice in response.choices[:n]
        ]

    def _rendered(self, prompt: Prompt) -> str:
        """The prompt as text that encodes to the same tokens as in training."""
        if isinstance(prompt, str):
            return prompt
        text = self.tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        if self.tokenizer(text=text)["input_ids"] != encode(self.tokenizer, [prompt])[0]:
            raise PrismError(
                "The chat prompt as text encodes to other tokens than in training (a beginning token twice?). Use the "
                "engine `transformers` or `vllm`, which take tokens."
            )
        return text


def _until_stop(completion: Completion, stop: Sequence[str]) -> Completion:
    """The completion up to its first stop string, which stays in it."""
    ends = [start + len(words) for words in stop if (start := completion.text.find(words)) >= 0]
    return Completion(completion.text[: min(ends)], False) if ends else completion


def _reason(error: BaseException) -> str:
    return first_line(error)[:300] or type(error).__name__

"""The engine `server` against a real one: `transformers serve` on real HTTP, killed and refused."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.integration.conftest import small_settings
from trl_prism.errors import PrismError
from trl_prism.ports.models import load_frozen
from trl_prism.ports.samplers import SamplingParams, TransformersSampler
from trl_prism.ports.server import ServerSampler
from trl_prism.recipe import config_from_mapping
from trl_prism.self_play import play


PROMPTS = [
    "multiply the larger of 7 and 12 by 3 and subtract 6 <a>",
    "tom has 22 apples and buys 14 more then eats 8 and finds 2 how many apples has tom <a>",
    "tom has 5 apples and buys 4 more then eats 2 and finds 3 how many apples has tom <a>",
]
GREEDY = SamplingParams(max_tokens=24, temperature=0)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(model: str | None, tmp_path_factory, port: int | None = None) -> tuple[subprocess.Popen, str]:
    port = port or free_port()
    log = (tmp_path_factory.mktemp("server") / "log").open("wb")
    process = subprocess.Popen(
        [
            *(str(Path(sys.executable).parent / "transformers"), "serve", *([model] if model else [])),
            *("--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"),
        ],
        stdout=log,
        stderr=log,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                return process, f"http://127.0.0.1:{port}/v1"
        except OSError:
            time.sleep(0.3)
    process.kill()
    raise AssertionError(Path(log.name).read_text()[-2000:])


@pytest.fixture(scope="module")
def sampling(base, tmp_path_factory):
    """The base model, set to sample: `transformers serve` takes that from the model alone."""
    folder = tmp_path_factory.mktemp("models") / "sampling"
    shutil.copytree(base, folder)
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "do_sample": True}))
    return str(folder)


@pytest.fixture(scope="module")
def servers(sampling, tmp_path_factory):
    started = [start(sampling, tmp_path_factory) for _ in range(2)]
    yield started
    for process, _ in started:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def expected(base, tokenizer):
    return TransformersSampler(load_frozen(base), tokenizer).sample(PROMPTS, num_samples=1, params=GREEDY, seed=0)


def test_the_same_greedy_answers_as_in_process(servers, sampling, tokenizer, expected):
    sampler = ServerSampler([servers[0][1]], sampling, tokenizer, max_concurrency=2)
    ticks = []
    given = sampler.sample(PROMPTS, num_samples=1, params=GREEDY, seed=0, on_progress=ticks.append)
    assert [[c.text.strip() for c in row] for row in given] == [[c.text.strip() for c in row] for row in expected]
    assert sum(ticks) == 3


def test_a_server_that_fails_on_stop_strings_is_asked_without(servers, sampling, tokenizer, expected):
    """As `transformers serve` does with the lab's tokenizer, whose tokens are whole words."""
    words = expected[2][0].text.split()
    params = SamplingParams(max_tokens=24, temperature=0, stop=(words[3],))
    [[given]] = ServerSampler([servers[0][1]], sampling, tokenizer).sample(
        PROMPTS[2:], num_samples=1, params=params, seed=0
    )
    assert given.text.split() == words[:4] and not given.truncated


@pytest.mark.long
def test_the_same_stop_strings_as_in_process(smollm2, tmp_path_factory):
    tokenizer = AutoTokenizer.from_pretrained(smollm2, padding_side="left")
    prompts = ["The three largest planets are", "A short list of fruit:"]
    params = SamplingParams(max_tokens=24, temperature=0, stop=(",", "."))
    here = TransformersSampler(load_frozen(smollm2), tokenizer).sample(prompts, num_samples=1, params=params, seed=0)
    process, url = start(smollm2, tmp_path_factory)
    try:
        sampler = ServerSampler([url], smollm2, tokenizer, max_concurrency=1)
        there = sampler.sample(prompts, num_samples=1, params=params, seed=0)
    finally:
        process.kill()
        process.wait()
    assert there == here and any(row[0].text.endswith((",", ".")) for row in here)
    assert not sampler._without_stop, "it was asked without, which the other test shows"


def test_every_completion_is_there_though_the_server_gives_one_at_a_time(servers, sampling, tokenizer):
    sampler = ServerSampler([servers[0][1]], sampling, tokenizer, max_concurrency=1)
    params = SamplingParams(max_tokens=24)
    given = sampler.sample(["<q>"], num_samples=4, params=params, seed=1)
    assert [len(row) for row in given] == [4]
    assert len({completion.text for completion in given[0]}) > 1, "each has a seed of its own"
    cut = sampler.sample(PROMPTS[:1], num_samples=1, params=SamplingParams(max_tokens=2, temperature=0), seed=0)
    assert cut[0][0].truncated


def test_a_server_that_dies_leaves_its_work_to_the_others(servers, sampling, tokenizer, expected):
    (first, one), (_, two) = servers
    sampler = ServerSampler([one, two], sampling, tokenizer, max_concurrency=1, max_retries=1)
    prompts = PROMPTS * 8
    killer = threading.Timer(0.5, lambda: first.send_signal(signal.SIGKILL))
    killer.start()
    given = sampler.sample(prompts, num_samples=1, params=GREEDY, seed=0)
    killer.join()
    assert [row[0].text.strip() for row in given] == [row[0].text.strip() for row in expected] * 8
    first.wait()
    again = sampler.sample(PROMPTS, num_samples=1, params=GREEDY, seed=0)
    assert [row[0].text.strip() for row in again] == [row[0].text.strip() for row in expected]
    with pytest.raises(PrismError, match=r"does not answer .*Start it"):
        ServerSampler([one], sampling, tokenizer)


def test_a_server_that_does_not_sample_is_refused_and_one_that_is_gone_is_a_clear_stop(
    base, tokenizer, tmp_path_factory
):
    process, url = start(base, tmp_path_factory)
    sampler = ServerSampler([url], base, tokenizer, max_retries=1)
    with pytest.raises(PrismError, match="the same completion for every seed"):
        sampler.sample(PROMPTS, num_samples=2, params=SamplingParams(max_tokens=4), seed=0)
    before = sampler.sample(PROMPTS, num_samples=1, params=GREEDY, seed=0)
    process.kill()
    process.wait()
    with pytest.raises(PrismError, match="None of the servers answers any more"):
        sampler.sample(PROMPTS, num_samples=1, params=GREEDY, seed=0)
    process, _ = start(base, tmp_path_factory, port=int(url.split(":")[-1].split("/")[0]))
    try:
        assert sampler.sample(PROMPTS, num_samples=1, params=GREEDY, seed=0) == before, "it has returned"
    finally:
        process.kill()
        process.wait()


def test_what_the_server_refuses_is_said(servers, sampling, tokenizer):
    sampler = ServerSampler([servers[1][1]], sampling, tokenizer, max_retries=0)
    with pytest.raises(PrismError, match="A server refused a request"):
        sampler.sample(PROMPTS[:1], num_samples=1, params=SamplingParams(max_tokens=4, top_k=5), seed=0)
    with pytest.raises(PrismError, match="`server_urls` is empty"):
        ServerSampler([], sampling, tokenizer)


def test_the_loop_with_votes_from_a_server(sampling, tmp_path_factory, tmp_path):
    """Without a model of its own the server loads the one that a request names: every round's Solver."""
    process, url = start(None, tmp_path_factory)
    try:
        settings = small_settings(
            tmp_path / "run",
            model_name_or_path=sampling,
            vote_engine="server",
            server_urls=[url],
            num_rounds=2,
            num_candidates=48,
            min_curriculum_size=1,
            questioner={"max_steps": 1, "prompts_per_step": 4},
            solver={"max_steps": 1, "prompts_per_step": 4, "num_generations": 4},
        )
        rows = play(config_from_mapping(settings))
    finally:
        process.kill()
        process.wait()
    assert [row["round"] for row in rows] == [0, 1, 2]
    assert all(0.2 < row["questioner/mean_agreement"] < 1 for row in rows)


def test_a_server_that_is_not_there_is_said_before_anything_is_trained(sampling, tmp_path):
    url = f"http://127.0.0.1:{free_port()}/v1"
    settings = small_settings(tmp_path / "run", model_name_or_path=sampling, vote_engine="server", server_urls=[url])
    with pytest.raises(PrismError, match="does not answer"):
        play(config_from_mapping(settings))
    assert not (tmp_path / "run").exists()
    with pytest.raises(PrismError, match="belong together"):
        config_from_mapping({**settings, "server_urls": None}).validate()

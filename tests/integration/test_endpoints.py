"""Several endpoints that hold one model, as `vllm serve` does: real HTTP, with answers that cost a fixed time."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trl_prism.errors import PrismError
from trl_prism.ports.samplers import SamplingParams, SpreadSampler
from trl_prism.ports.server import ServerSampler


@pytest.fixture
def endpoint():
    """Starts an endpoint; its `log` counts requests and how many were in flight at once."""
    started = []

    def start(model: str, owner: str = "vllm"):
        log = {"requests": 0, "now": 0, "peak": 0, "url": ""}
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.reply(
                    {"object": "list", "data": [{"id": model, "object": "model", "created": 0, "owned_by": owner}]}
                )

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    log["requests"] += 1
                    log["now"] += 1
                    log["peak"] = max(log["peak"], log["now"])
                time.sleep(0.02)
                with lock:
                    log["now"] -= 1
                choices = [
                    {
                        "index": i,
                        "text": f"{asked['prompt']} {asked['seed']} {i}",
                        "finish_reason": "stop",
                        "logprobs": None,
                    }
                    for i in range(asked["n"])
                ]
                self.reply({"id": "1", "object": "text_completion", "created": 0, "model": model, "choices": choices})

            def reply(self, content):
                body = json.dumps(content).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        log["url"] = f"http://127.0.0.1:{server.server_address[1]}/v1"
        started.append(server)
        return server, log

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


PROMPTS = [f"question {i}" for i in range(100)]


def test_two_endpoints_share_the_work(endpoint, tokenizer):
    (_, one), (_, two) = endpoint("m"), endpoint("m")
    sampler = ServerSampler([one["url"], two["url"]], "m", tokenizer, max_concurrency=8)
    spread = SpreadSampler(sampler, tokenizer, batch_size=1024)
    drawn = spread.sample(PROMPTS, num_samples=10, params=SamplingParams(max_tokens=8), seed=0)
    assert [len(row) for row in drawn] == [10] * 100
    assert all(row[0].text.startswith(prompt) for row, prompt in zip(drawn, PROMPTS, strict=True))
    # Beside the work each has answered the four questions whether it samples.
    assert min(one["requests"], two["requests"]) >= 4 + 35, (one, two)
    assert max(one["peak"], two["peak"]) <= 8 and min(one["peak"], two["peak"]) >= 6


def test_an_endpoint_that_is_gone_when_a_phase_begins_leaves_its_work_to_the_others(endpoint, tokenizer):
    (first, one), (_, two) = endpoint("m"), endpoint("m")
    first.shutdown()
    first.server_close()
    urls = [one["url"], two["url"]]
    with pytest.raises(PrismError, match="does not answer"):
        ServerSampler(urls, "m", tokenizer)
    sampler = ServerSampler(urls, "m", tokenizer, all_of_them=False, max_retries=0)
    drawn = sampler.sample(PROMPTS[:5], num_samples=2, params=SamplingParams(max_tokens=8), seed=0)
    assert [len(row) for row in drawn] == [2] * 5
    with pytest.raises(PrismError, match="None of the servers answers any more"):
        ServerSampler([one["url"]], "m", tokenizer, all_of_them=False, max_retries=0)


def test_an_endpoint_that_holds_another_model_is_named_with_the_way_out(endpoint, tokenizer):
    _, one = endpoint("base")
    with pytest.raises(
        PrismError, match=r"holds base, not /runs/round-01/solver. Start it with that model and run the"
    ):
        ServerSampler([one["url"]], "/runs/round-01/solver", tokenizer)
    _, loads = endpoint("in the cache", owner="")
    ServerSampler([loads["url"]], "/runs/round-01/solver", tokenizer)

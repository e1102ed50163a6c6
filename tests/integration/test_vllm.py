"""TRL's vLLM engine shared between a trainer and the frozen Solver.

vLLM itself needs a GPU. Everything above it is real here: TRL's `VLLMGeneration`, the trainers, the loop. In the place
of `vllm.LLM` stands a model of transformers that takes weights, sleeps and generates as vLLM is asked to.
"""

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM
from trl.generation import vllm_generation

from prism_lab.domain import Lab
from tests.integration.conftest import BASE
from trl_prism.errors import PrismError
from trl_prism.ports import vllm
from trl_prism.ports.models import load_frozen
from trl_prism.ports.samplers import SamplingParams, TransformersSampler
from trl_prism.ports.vllm import ColocatedSampler, SharedEngine, start_engine
from trl_prism.self_play import play


class StandIn:
    """What the shared engine uses of `vllm.LLM`. Asleep its weights are rubbish, as vLLM's are at level 2."""

    def __init__(self, tokenizer):
        self.model = AutoModelForCausalLM.from_pretrained(BASE).eval()
        self.tokenizer = tokenizer
        self.num_pushed, self.num_generated, self.params = 0, 0, []
        worker = SimpleNamespace(model_runner=SimpleNamespace(model=self))
        self.llm_engine = SimpleNamespace(
            model_executor=SimpleNamespace(driver_worker=worker), model_config=SimpleNamespace(max_model_len=512)
        )

    def load_weights(self, pairs):
        for name, tensor in pairs:
            self.num_pushed += 1
            self.model.state_dict()[name].copy_(tensor.detach())

    def sleep(self, level):
        assert level == 2
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.fill_(float("nan"))

    def wake_up(self, tags):
        assert tags in (["weights"], ["kv_cache"])

    def reset_prefix_cache(self):
        pass

    def generate(self, prompts, sampling_params, use_tqdm):
        assert next(self.model.parameters()).isfinite().all(), "drawn while asleep"
        p = sampling_params
        assert p.n == 1 or p.temperature > 0, "vLLM refuses several greedy completions"
        self.params.append(p)
        self.num_generated += len(prompts)
        sampler = TransformersSampler(self.model, self.tokenizer)
        params = SamplingParams(max_tokens=p.max_tokens, temperature=p.temperature, top_p=p.top_p, top_k=p.top_k)
        outputs = []
        for i, prompt in enumerate(prompts):
            text = self.tokenizer.decode(prompt["prompt_token_ids"])
            [drawn] = sampler.sample([text], num_samples=p.n, params=params, seed=(p.seed or 0) + i)
            ids = [
                self._until_stop([*self.tokenizer(c.text)["input_ids"], *([] if c.truncated else [1])], p)
                for c in drawn
            ]
            logprobs = [{t: SimpleNamespace(logprob=-1.0, rank=1)} for t in range(40)]
            outputs.append(
                SimpleNamespace(
                    prompt_token_ids=prompt["prompt_token_ids"],
                    outputs=[
                        SimpleNamespace(
                            token_ids=row, logprobs=None if p.logprobs is None else logprobs[: len(row)], text=""
                        )
                        for row in ids
                    ],
                )
            )
        return outputs

    def _until_stop(self, ids, params):
        ends = (n for n in range(1, len(ids) + 1) if self.tokenizer.decode(ids[:n]).endswith(tuple(params.stop)))
        if not params.stop:
            return ids
        assert params.include_stop_str_in_output
        return ids[: next(ends, len(ids))]


@pytest.fixture
def stand_in(monkeypatch, tokenizer):
    """`vllm.LLM` replaced; the test sees which engines were started."""
    started = []

    def init(self):
        self.llm = StandIn(tokenizer)
        self._llm_weights_sleeping = self.enable_sleep_mode
        if self.enable_sleep_mode:
            self.llm.sleep(level=2)
        started.append(self)

    class Params(SimpleNamespace):
        def __init__(self, **kwargs):
            super().__init__(**{"seed": None, "stop": [], **kwargs})

    monkeypatch.setattr(vllm, "installed", lambda: True)
    monkeypatch.setattr(SharedEngine, "_init_vllm", init)
    monkeypatch.setattr(vllm_generation, "SamplingParams", Params, raising=False)
    return started


@pytest.mark.parametrize("sleep", [False, True])
def test_answers_as_transformers_and_gives_the_engine_back(stand_in, tokenizer, sleep):
    trained = AutoModelForCausalLM.from_pretrained(BASE)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.mul_(0.5)
    engine = start_engine(trained, tokenizer, max_model_length=128, enable_sleep_mode=sleep)
    before = {name: getattr(engine, name) for name in ("model", "accelerator", "temperature", "generation_kwargs")}
    solver = load_frozen(BASE)
    prompts = ["<q>", "<q> apples 7 fence", "<q> apples"]
    greedy = SamplingParams(max_tokens=16, temperature=0)
    colocated, plain = ColocatedSampler(engine, solver, tokenizer), TransformersSampler(solver, tokenizer)
    expected = plain.sample(prompts, num_samples=1, params=greedy, seed=0)
    assert colocated.sample(prompts, num_samples=1, params=greedy, seed=0) == expected
    assert colocated.sample(prompts, num_samples=3, params=greedy, seed=0) == [row * 3 for row in expected]
    assert {name: getattr(engine, name) for name in before} == before
    assert engine.holds is solver

    third = expected[0][0].text.split()[2]
    stopped = SamplingParams(max_tokens=16, temperature=0, stop=(third,))
    [[short], *_] = colocated.sample(prompts, num_samples=1, params=stopped, seed=0)
    assert short.text.split()[-1] == third and not short.truncated and expected[0][0].text.startswith(short.text)

    drawn = colocated.sample(prompts, num_samples=8, params=SamplingParams(max_tokens=16), seed=5)
    assert [len(row) for row in drawn] == [8, 8, 8]
    assert len({completion.text for completion in drawn[0]}) > 1, "one seed for all gave one completion eight times"
    engine.sync_weights()
    assert engine.holds is trained
    assert engine.llm.model.state_dict()["model.norm.weight"].equal(trained.state_dict()["model.norm.weight"])


@pytest.mark.parametrize("sleep", [False, True])
def test_the_whole_loop_has_one_engine_and_every_phase_its_own_weights(stand_in, small, sleep, monkeypatch):
    from trl_prism.trainers.role import RoleTrainer

    held = []
    drawn = RoleTrainer._generate_single_turn

    frozen = load_frozen(BASE)

    def noted(self, prompt_ids, *args, **kwargs):
        drawn(self, prompt_ids, *args, **kwargs)
        # Votes in between, at the same step of the trainer: it must push its own weights again.
        self.vllm_generation.draw(frozen, [[3, 4]], num_samples=1, params=SamplingParams(max_tokens=2), seed=0)
        assert self.vllm_generation.holds is frozen
        result = drawn(self, prompt_ids, *args, **kwargs)
        mine = self.model.state_dict()["model.embed_tokens.weight"]
        theirs = self.vllm_generation.llm.model.state_dict()["model.embed_tokens.weight"]
        held.append(self.vllm_generation.holds is self.model and (sleep or mine.equal(theirs)))
        return result

    monkeypatch.setattr(RoleTrainer, "_generate_single_turn", noted)
    monkeypatch.setattr(Lab, "solver_stop", ("no such words",))
    rows = play(small(vote_engine="vllm", use_vllm=True, vllm_enable_sleep_mode=sleep, num_candidates=32))
    assert [row["round"] for row in rows] == [0, 1]
    assert rows[1]["pool/num_kept"] >= 4 and rows[1]["solver/accuracy"] is not None
    [engine] = stand_in
    assert len(held) == 4 and all(held), "two steps of two phases, each with the trained weights in the engine"
    assert engine.model is None, "the last phase's model is kept alive"
    trained = [params for params in engine.llm.params if params.logprobs is not None]
    assert [tuple(params.stop) for params in trained] == [()] * 4 + [("no such words",)] * 4


def test_what_the_engine_cannot_do_is_refused(small):
    with pytest.raises(PrismError, match=r"set `use_vllm: true`.*the questioner has not"):
        small(vote_engine="vllm").validate()
    with pytest.raises(PrismError, match="the solver has not"):
        small(vote_engine="vllm", use_vllm=True, solver={"vllm_mode": "server"}).validate()
    with pytest.raises(PrismError, match="vllm_tensor_parallel_size` is 2; it must be 1"):
        small(vote_engine="vllm", use_vllm=True, vllm_tensor_parallel_size=2).validate()


def test_without_vllm_there_is_one_clear_error(small):
    with pytest.raises(PrismError, match=r"pip install 'trl-prism\[vllm\]'"):
        play(small(vote_engine="vllm", use_vllm=True))

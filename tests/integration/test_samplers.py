import numpy as np
import pytest
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from trl_prism.errors import PrismError, WorkError
from trl_prism.ports.models import load_frozen
from trl_prism.ports.ranks import dealt, from_main, gather_list, together
from trl_prism.ports.samplers import LogprobScorer, SamplingParams, SpreadSampler, TransformersSampler, encode


PROMPTS = [
    "multiply the larger of 7 and 12 by 3 and subtract 6 <a>",
    "tom has 22 apples and buys 14 more then eats 8 and finds 2 how many apples has tom <a>",
]


@pytest.fixture(scope="module")
def model(base):
    return load_frozen(base)


def test_a_draw_depends_on_its_seed_alone(model, tokenizer):
    sampler = TransformersSampler(model, tokenizer, batch_size=16)
    params = SamplingParams(max_tokens=20)
    torch.manual_seed(1)
    first = sampler.sample(PROMPTS, num_samples=8, params=params, seed=5)
    before = torch.random.get_rng_state()
    second = sampler.sample(PROMPTS, num_samples=8, params=params, seed=5)
    assert first == second
    assert (torch.random.get_rng_state() == before).all(), "the process's own random stream moved"
    assert sampler.sample(PROMPTS, num_samples=8, params=params, seed=6) != first


def test_greedy_is_the_same_in_any_batch(model, tokenizer):
    params = SamplingParams(max_tokens=24, temperature=0)
    one, many = (
        TransformersSampler(model, tokenizer, batch_size=size).sample(PROMPTS, num_samples=2, params=params, seed=0)
        for size in (1, 64)
    )
    assert one == many
    assert all(len({completion.text for completion in samples}) == 1 for samples in one)


def test_order_and_counts(model, tokenizer):
    ticks = []
    sampler = TransformersSampler(model, tokenizer, batch_size=3)
    out = sampler.sample(PROMPTS, num_samples=4, params=SamplingParams(max_tokens=4), seed=0, on_progress=ticks.append)
    assert [len(samples) for samples in out] == [4, 4] and sum(ticks) == 8
    assert sampler.sample([], num_samples=4, params=SamplingParams(max_tokens=4), seed=0) == []


def test_cut_off_is_told_from_ended(model, tokenizer):
    sampler = TransformersSampler(model, tokenizer)
    cut = sampler.sample(PROMPTS, num_samples=1, params=SamplingParams(max_tokens=1, temperature=0), seed=0)
    whole = sampler.sample(PROMPTS, num_samples=1, params=SamplingParams(max_tokens=40, temperature=0), seed=0)
    assert all(samples[0].truncated for samples in cut)
    assert not any(samples[0].truncated for samples in whole)


def test_scores_are_the_models_own_log_probabilities(model, tokenizer):
    texts = ["evidently <ans> 30", "comparing 7 max 12 = 12", ""]
    scores = LogprobScorer(model, tokenizer, batch_size=2).score(PROMPTS[0], texts)
    head = encode(tokenizer, [PROMPTS[0]])[0]
    for text, (mean, low) in zip(texts[:2], scores[:2], strict=True):
        ids = head + tokenizer(text)["input_ids"]
        with torch.no_grad():
            logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        own = [float(logprobs[i - 1, ids[i]]) for i in range(len(head), len(ids))]
        assert mean == pytest.approx(np.mean(own), abs=1e-4) and low == pytest.approx(min(own), abs=1e-4)
    assert (scores[2] == -np.inf).all()


def test_prompts_are_encoded_as_trl_encodes_them(base, tokenizer, tmp_path):
    trainer = GRPOTrainer(
        base,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(
            output_dir=str(tmp_path),
            use_cpu=True,
            bf16=False,
            report_to="none",
            num_generations=2,
            per_device_train_batch_size=2,
        ),
        train_dataset=Dataset.from_list([{"prompt": PROMPTS[0]}] * 2),
        processing_class=tokenizer,
    )
    assert trainer._tokenize_prompts(PROMPTS)[0] == encode(tokenizer, PROMPTS)
    tokenizer_with_template = tokenizer.__class__.from_pretrained(base)
    tokenizer_with_template.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}<a>"
    trainer.processing_class = trainer._tokenizer = tokenizer_with_template
    trainer.chat_template = None
    messages = [[{"role": "user", "content": "tom has 3 apples"}]]
    assert trainer._tokenize_prompts(messages)[0] == encode(tokenizer_with_template, messages)


def test_a_spread_draw_has_everything_in_its_place(model, tokenizer):
    inner = TransformersSampler(model, tokenizer, batch_size=8)
    spread = SpreadSampler(inner, tokenizer, batch_size=8)
    ticks = []
    greedy = SamplingParams(max_tokens=24, temperature=0)
    prompts = [*PROMPTS, *PROMPTS[::-1]]
    for num_samples in (1, 3, 20):  # several prompts in a chunk, two, a part of one
        ticks.clear()
        out = spread.sample(prompts, num_samples=num_samples, params=greedy, seed=0, on_progress=ticks.append)
        assert out == inner.sample(prompts, num_samples=num_samples, params=greedy, seed=0)
        assert sum(ticks) == 4 * num_samples
    warm = SamplingParams(max_tokens=20)
    first = spread.sample(PROMPTS, num_samples=20, params=warm, seed=5)
    assert first == spread.sample(PROMPTS, num_samples=20, params=warm, seed=5)
    assert first != spread.sample(PROMPTS, num_samples=20, params=warm, seed=6)
    [questions] = spread.sample(["<q>"], num_samples=24, params=SamplingParams(max_tokens=28), seed=0)
    assert len({completion.text for completion in questions}) > 8, "every chunk of 8 has a random stream of its own"
    assert spread.sample([], num_samples=4, params=warm, seed=0) == []


def test_one_rank_is_the_identity():
    assert gather_list([1, 2]) == [1, 2]
    assert dealt([1, 2, 3], 2, lambda number, chunk: [10 * number + item for item in chunk]) == [1, 2, 13]
    assert from_main(lambda: 5) == 5 and together("it", lambda: 6) == 6


def test_what_fails_on_one_rank_is_one_clear_error():
    with pytest.raises(WorkError, match=r"the sum failed: ZeroDivisionError: .*") as caught:
        together("the sum", lambda: 1 / 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(PrismError, match=r"^mend me$"):
        from_main(lambda: (_ for _ in ()).throw(PrismError("mend me")))

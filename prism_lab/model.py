"""The lab's model: a Qwen3 of about 0.2 million parameters, and its word-level tokenizer."""

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, set_seed

from prism_lab.skills import words


QUESTION, ANSWER, RESULT = "<q>", "<a>", "<ans>"
BOS, EOS, PAD, UNK = "<bos>", "<eos>", "<pad>", "<unk>"
MAX_TOKENS = 64


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per word, number or mark."""
    vocabulary = {word: i for i, word in enumerate([PAD, EOS, BOS, UNK, QUESTION, ANSWER, RESULT, *words()])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        unk_token=UNK,
        model_max_length=MAX_TOKENS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def build_model(
    tokenizer: PreTrainedTokenizerFast, *, seed: int, num_layers: int = 2, hidden_size: int = 96
) -> Qwen3ForCausalLM:
    """The untrained model. Dropout-free, so that a training step depends on its batch alone."""
    set_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=hidden_size // 4,
        max_position_embeddings=MAX_TOKENS,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
    )
    return Qwen3ForCausalLM(config)

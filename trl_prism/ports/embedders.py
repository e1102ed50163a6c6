"""Text to vectors. An embedder is frozen: nothing in training changes it."""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trl_prism._compat import whole_on_every_rank
from trl_prism.core.partition import check_embeddings
from trl_prism.errors import PrismError, first_line
from trl_prism.ports.ranks import state


TFIDF = "tfidf"


class Embedder(Protocol):
    """Gives each text a unit vector.

    Attributes:
        fingerprint (`str`): Names the embedder and everything that its vectors depend on.
    """

    fingerprint: str

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """L2-normalised float32 embeddings, shape `(n, d)`."""
        ...


def build_embedder(name: str, *, reference: Sequence[str], revision: str | None = None, **kwargs: Any) -> Embedder:
    """The embedder of a recipe: `tfidf`, or any sentence-transformers model by Hub id or path.

    Args:
        name (`str`): `"tfidf"`, a Hub id or a local folder.
        reference (`Sequence[str]`): The reference corpus; `tfidf` takes its vocabulary from it.
        revision (`str`, *optional*): Revision of the Hub id. Pin it: vectors of two revisions cannot be compared.
        kwargs: Passed to the embedder's constructor.
    """
    try:
        if name == TFIDF:
            return TfidfEmbedder(reference, **kwargs)
        return SentenceTransformerEmbedder(name, revision=revision, **kwargs)
    except PrismError:
        raise
    except (OSError, ValueError, TypeError, re.error) as error:
        raise PrismError(
            f"The embedder {name!r} cannot be made: {first_line(error)}. Give `tfidf`, a folder or a Hub id of a "
            "sentence-transformers model, and check `embedder_kwargs`."
        ) from error


class SentenceTransformerEmbedder:
    """A sentence-transformers model, loaded whole on every rank and outside of ZeRO-3's partitioned loading.

    Args:
        name (`str`): Hub id or local folder, for instance `Qwen/Qwen3-Embedding-0.6B`.
        revision (`str`, *optional*): Revision of the Hub id.
        device (`str`, *optional*): Where it runs; by default the rank's GPU, or the CPU.
        batch_size (`int`, *optional*, defaults to `64`): Texts per forward pass.
        prompt (`str`, *optional*): Instruction put before each text, for models that expect one.
        dtype (`str`, *optional*): Weights' type, for instance `"bfloat16"`. The vectors are float32 in any case.
    """

    def __init__(
        self,
        name: str,
        *,
        revision: str | None = None,
        device: str | None = None,
        batch_size: int = 64,
        prompt: str | None = None,
        dtype: str | None = None,
    ):
        from sentence_transformers import SentenceTransformer

        with whole_on_every_rank():
            self.model = SentenceTransformer(
                name,
                revision=revision,
                device=device or str(state().device),
                model_kwargs={"dtype": dtype} if dtype else {},
            )
        empty = [key for key, weight in self.model.named_parameters() if weight.numel() == 0]
        if empty:
            raise PrismError(f"The embedder {name} was loaded without weights ({empty[0]} is empty).")
        self.model.eval().requires_grad_(False)
        self.batch_size = batch_size
        self.prompt = prompt
        settings = {"name": _stable_name(name), "revision": revision, "prompt": prompt, "dtype": dtype}
        self.fingerprint = json.dumps(settings, sort_keys=True)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if not texts:
            return np.zeros((0, int(self.model.get_embedding_dimension())), dtype=np.float32)
        vectors = self.model.encode(
            list(texts),
            batch_size=self.batch_size,
            prompt=self.prompt,
            convert_to_tensor=True,
            show_progress_bar=False,
        )
        return check_embeddings(vectors.float().cpu().numpy())


def _stable_name(name: str) -> str:
    """A Hub id as it is; a local folder by its last part and its weights' hash, since paths differ by machine."""
    folder = Path(name)
    if not folder.is_dir():
        return name
    digest = hashlib.sha256()
    for file in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        digest.update(file.read_bytes())
    return f"{folder.name}@{digest.hexdigest()[:16]}"


class TfidfEmbedder:
    """Words and their rarity, reduced by a singular value decomposition; no weights, a millisecond for a batch.

    Numbers are left out by default: what a question is about does not depend on them. A text that holds no word of
    the reference corpus is a direction of its own.

    Args:
        reference (`Sequence[str]`): The corpus that the vocabulary, the weights and the decomposition come from.
        dimension (`int`, *optional*, defaults to `64`): Width of the decomposition; less where the corpus has fewer.
        token_pattern (`str`, *optional*): What a word is.
        seed (`int`, *optional*, defaults to `0`): Seed of the decomposition.
    """

    def __init__(
        self,
        reference: Sequence[str],
        *,
        dimension: int = 64,
        token_pattern: str = r"[^\W\d_]+",
        seed: int = 0,
    ):
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        if not any(reference):
            raise PrismError("The reference corpus is empty; the `tfidf` embedder has nothing to learn words from.")
        self._vectorizer = TfidfVectorizer(token_pattern=token_pattern, sublinear_tf=True)
        # Sorted, so that the corpus's order does not matter.
        weights = self._vectorizer.fit_transform(sorted(set(reference)))
        width = min(dimension, min(weights.shape) - 1)
        if width < 1:
            raise PrismError("The reference corpus holds fewer than two different words or questions.")
        self._svd = TruncatedSVD(n_components=width, random_state=seed).fit(weights)
        corpus = hashlib.sha256("\x00".join(sorted(set(reference))).encode("utf-8", "surrogatepass"))
        settings = {
            "name": TFIDF,
            "dimension": width,
            "token_pattern": token_pattern,
            "seed": seed,
            "corpus": corpus.hexdigest()[:16],
        }
        self.fingerprint = json.dumps(settings, sort_keys=True)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        width = self._svd.n_components
        if not texts:
            return np.zeros((0, width + 1), dtype=np.float32)
        vectors = np.zeros((len(texts), width + 1))
        vectors[:, :width] = self._svd.transform(self._vectorizer.transform(texts))
        vectors[np.linalg.norm(vectors, axis=1) < 1e-9, width] = 1.0
        return check_embeddings(vectors)

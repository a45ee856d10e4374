"""Tokens and sequences of a training text, from one gradient of a language model.

References:
    Petrov et al., DAGER: Exact Gradient Inversion for Large Language Models, NeurIPS 2024.
"""

from leakgauge.core.lazy import attach

_PLACES = {
    "RecoveredText": "recovered",
    "TextScore": "recovered",
    "dager": "sequences",
    "recover_tokens": "embeddings",
    "score_text": "recovered",
}

__getattr__, __dir__, __all__ = attach(
    __name__, {name: f"{__name__}.{place}" for name, place in _PLACES.items()}
)

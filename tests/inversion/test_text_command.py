"""``leakgauge invert --task`` on language models: rebuilt texts, scores, reports and refusals."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from leakgauge.cli import main
from leakgauge.core.types import Dataset
from leakgauge.inversion.metrics.similarity import align_to_truth
from leakgauge.inversion.scoring import Scorer
from leakgauge.inversion.text.recovered import frequent_tokens, guessed_tokens, token_scores
from leakgauge.inversion.words import FREQUENT, NEAREST

pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

MODULE = "text_task"
TASK = """
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel
from leakgauge import Dataset, Task
from leakgauge.integrations.hugging_face_task import causal_task

def texts(length=8):
    rng = torch.Generator().manual_seed(1)
    return torch.randint(1, 300, (24, length), generator=rng)

def model():
    config = GPT2Config(
        n_layer=2, n_embd=64, n_head=4, vocab_size=300, n_positions=32,
        bos_token_id=0, eos_token_id=0, tie_word_embeddings=False,
    )
    return GPT2LMHeadModel(config).eval()

def build():
    return causal_task(model()), Dataset(texts(), texts())

def padded():
    x, y = texts(), texts()
    x[:, 5:], y[:, 5:] = 0, -100
    return causal_task(model()), Dataset(x, y)

def few():
    return causal_task(model()), Dataset(texts()[:2], texts()[:2])

def bag():
    net = nn.Sequential(nn.EmbeddingBag(300, 8), nn.Linear(8, 2))
    return Task(net, nn.functional.cross_entropy), Dataset(texts(), torch.arange(24) % 2)

def table():
    net = nn.Sequential(nn.Linear(8, 2))
    return Task(net, nn.functional.cross_entropy), Dataset(texts().float(), torch.arange(24) % 2)
"""

Go = Callable[..., tuple[int, str, str]]


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Go:
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{MODULE}.py").write_text(TASK, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")

    def run(function: str | None, *words: object) -> tuple[int, str, str]:
        first = () if function is None else ("--task", f"{MODULE}:{function}")
        every = ("leakgauge", "invert", *first, *words)
        monkeypatch.setattr("sys.argv", list(map(str, every)))
        with pytest.raises(SystemExit) as done:
            main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    return run


@pytest.mark.calibration
def test_texts_are_rebuilt_and_noise_hides_them(go: Go, tmp_path: Path) -> None:
    noise = "noise:std=0.001"
    sizes = ("--batch-size", 2, "--images", 4)
    code, out, err = go("build", *sizes, "--defense", noise, "--out", "run", "--json")
    assert code == 0, err
    plain, noisy = json.loads(out)["results"]
    assert (plain["method"], plain["defense"], noisy["defense"]) == ("dager", "none", noise)
    assert plain["token_accuracy"]["value"] == plain["sequences"]["value"] == 1
    assert noisy["token_accuracy"]["value"] == 0
    assert plain["baselines"][FREQUENT]["token_accuracy"]["value"] < 0.2
    assert plain["baselines"][NEAREST]["sequences"]["value"] == 0
    assert plain["warnings"] == []
    assert "the gradient has noise" in noisy["warnings"][0]
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    for words in ("Texts rebuilt", "Search stopped", "Tokens right", "token 8", "100"):
        assert words in page
    assert "guessing the most frequent tokens gives" in page


def test_padding_does_not_count(go: Go) -> None:
    code, out, err = go("padded", "--images", 2, "--json", "--redact")
    assert code == 0, err
    assert json.loads(out)["token_accuracy"]["value"] == 1


@pytest.mark.parametrize(
    ("function", "words", "reason"),
    [
        ("table", (), r"the records of --task are [8] float32; only a language model's token"),
        ("bag", (), "Sequential has 0 attention layers"),
        ("few", ("--images", 2), "all 2 sequences are attacked"),
        ("build", ("--method", "agic"), "--task has token sequences; choose dager"),
        ("build", ("--labels", "known"), "--labels known would grant the tokens themselves"),
        ("build", ("--local-steps", 2), "--local-steps does not go with the text of a --task"),
        ("build", ("--epochs", 2), "--epochs does not go with the text of a --task"),
        ("build", ("--method", "dager:tolerance=-1"), "tolerance"),
    ],
)
def test_what_does_not_fit_is_refused(
    go: Go, function: str, words: tuple[object, ...], reason: str
) -> None:
    code, _, err = go(function, *words)
    assert code != 0
    assert reason in err


def test_dager_needs_text(go: Go) -> None:
    code, _, err = go(None, "randhie", "--method", "dager")
    assert code != 0
    assert "rebuilds token sequences; give a language model" in err


def test_tokens_are_scored_in_the_order_of_the_truth() -> None:
    truth = torch.tensor([[1, 2, 3], [4, 5, 6]])
    found = torch.tensor([[4, 5, -1], [9, 2, 3]])
    order = align_to_truth(found, truth)
    assert order.tolist() == [1, 0]
    counted = torch.ones(2, 3, dtype=torch.bool)
    scores = Scorer(tokens=counted).scores(found[order], truth)
    torch.testing.assert_close(scores["token_accuracy"], torch.full((2,), 2 / 3).double())
    assert scores["sequences"].tolist() == [0, 0]
    counted[:, 2] = False
    assert token_scores(found[order], truth, counted)["sequences"].tolist() == [0, 1]


def test_guesses_use_public_texts_only() -> None:
    public = Dataset(torch.tensor([[1, 2], [1, 3], [4, 3]]), torch.zeros(3))
    guesses = guessed_tokens(public.x, frequent_tokens(public.x), torch.tensor([[4, 9], [1, 2]]))
    assert guesses[FREQUENT].tolist() == [[1, 3], [1, 3]]
    assert guesses[NEAREST].tolist() == [[4, 3], [1, 2]]

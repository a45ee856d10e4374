"""The command line as users see it: real files, and real processes if they matter."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from leakgauge.results.measurements import read_measurements
from support import command
from support.command import figures
from support.tables import frame

pytestmark = pytest.mark.usefixtures("blank_charts")

SMALL = ("--rounds", "2", "--trials", "200", "--batch-size", "4", "--shadow", "120")
QUICK = (*SMALL, "--adversary", "energies", "--workers", 1)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "people.csv"
    frame().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def finished(table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    out = tmp_path_factory.mktemp("finished") / "run"
    done = command.run(
        "audit", table, "--label", "income", "--secret", "sex", "--ask", "property", "--ask",
        "attribute", "--adversary", "forest", "--group", "person", *SMALL, "--out", out, "--json",
        "--workers", 1,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out, json.loads(done.stdout)


def test_json_has_what_a_pipeline_needs(finished: tuple[Path, dict]) -> None:
    out, printed = finished
    answer = printed["inference"]
    assert (answer["label"], answer["secret"], answer["seed"]) == ("income", "sex", 0)
    assert printed["report"] == str(out / "report.html")
    assert [row["ask"] for row in printed["summary"]] == ["property", "attribute"]
    assert [(cell["ask"], cell["adversary"]) for cell in answer["cells"]] == [
        ("property", "forest"),
        ("attribute", "forest"),
    ]
    for cell in answer["cells"]:
        assert (cell["defense"], cell["knowledge"], cell["trials"]) == ("none", "static", 200)
        assert [r["round"] for r in cell["rounds"]] == [1, 2]
        for measured in (cell["accumulated"], *cell["rounds"]):
            for metric in ("auroc", "success", "advantage"):
                found = measured[metric]
                assert found["low"] <= found["value"] <= found["high"]
        assert 0 < cell["utility"]["accuracy"]["value"] <= 1


def test_folder_holds_records_run_and_report(finished: tuple[Path, dict]) -> None:
    out, printed = finished
    assert "<html" in (out / "report.html").read_text(encoding="utf-8")
    run = (out / "run.yaml").read_text(encoding="utf-8")
    for word in ("seed", "fingerprint", "torch", "batch_size", "group: person"):
        assert word in run
    accumulated = [
        r for r in read_measurements(out) if (r.metric, r.round) == ("auroc", "accumulated")
    ]
    for cell, record in zip(printed["inference"]["cells"], accumulated, strict=True):
        assert cell["accumulated"]["auroc"]["value"] == record.estimate.value


def test_two_secrets_are_two_answers_in_one_report(table: Path, tmp_path: Path) -> None:
    people = pd.read_csv(table).assign(smokes=lambda all_: np.arange(len(all_)) % 2)
    people.to_csv(tmp_path / "people.csv", index=False)
    args = ("--label", "income", "--secret", "sex", "--secret", "smokes", "--ask", "property")
    words = ("audit", tmp_path / "people.csv", *args, *QUICK, "--out", tmp_path / "run")
    done = command.run(*words)
    assert done.returncode == 0, done.stderr
    assert "property of sex" in done.stdout
    assert "property of smokes" in done.stdout
    printed = json.loads(command.run(*words, "--json").stdout)
    assert [one["secret"] for one in printed["headline"]] == ["sex", "smokes"]
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    anchors = re.findall(r' id="([^"]+)"', page)
    assert len(set(anchors)) == len(anchors)
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(anchors)


def test_report_rebuilds_the_same_page(finished: tuple[Path, dict]) -> None:
    out, _ = finished
    page = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    done = command.run("report", out)
    assert done.returncode == 0
    assert (out / "report.html").read_bytes() == page


def test_terminal_shows_verdict_and_report(table: Path, tmp_path: Path) -> None:
    done = command.run(
        "audit", table, "--label", "income", "--secret", "sex", *QUICK, cwd=tmp_path
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "'sex'" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("report: ")]
    assert (tmp_path / line.removeprefix("report: ").split("  (")[0]).exists()


TASK = """
import numpy as np, torch
from leakgauge import Task, from_arrays

rng = np.random.default_rng(0)
s = rng.integers(2, size=600)
x = rng.normal(size=(600, 1, 6, 6)); x[:, 0, 0] += 4 * s[:, None]
y = (x[:, 0, 1].sum(1) > 0).astype(int)

def data(**more):
    return from_arrays(x, y, {"s": s, **more})

def net(*layers):
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.LazyLinear(2)).eval()

def build(*layers):
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(36, 2))
    return Task(model, torch.nn.functional.cross_entropy), data()

def conv(): return build(torch.nn.Conv2d(1, 1, 3, padding=1), torch.nn.ReLU())
def batchnorm(): return build(torch.nn.BatchNorm2d(1))
def dropout(): return build(torch.nn.Dropout())
def number(): return 3
def swapped(): return build()[::-1]
def broken(): raise RuntimeError("no weights here")
def two(): return build()[0], data(t=1 - s)
def nan():
    task, found = build(); found.x[3] = float("nan"); return task, found
def infinite():
    task, found = build(); found.x[3, 0, 0, 0] = float("inf"); return task, found
def wide():
    task, _ = build(); return task, from_arrays(rng.normal(size=(600, 5)), y, {"s": s})
class Branch(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(36, 2)
    def forward(self, x):
        x = x.flatten(1)
        return self.layer(x if x.abs().max() < 1e6 else -x)
def frozen():
    task, found = build(); task.model.requires_grad_(False); return task, found
def onebased(): return build()[0], from_arrays(x, y, {"s": s + 1})
def arrays():
    from leakgauge import Dataset
    return build()[0], Dataset(x, torch.tensor(y), {"s": torch.tensor(s)})
def leaves(): raise SystemExit(3)
class Odd(torch.nn.Module):
    "Unused and scalar parameters, one output, a loss of its own."
    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.ones(3))
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.layer = torch.nn.Linear(36, 1)
    def forward(self, x):
        return (self.scale * self.layer(x.flatten(1))).squeeze(1)
def odd():
    torch_loss = torch.nn.functional.binary_cross_entropy_with_logits
    return Task(Odd(), lambda out, y: torch_loss(out, y.float())), data()
def branch(): return Task(Branch(), torch.nn.functional.cross_entropy), data()
def constant(): return build()[0], from_arrays(x, y, {"s": s * 0})
def talking(): print("reading my records"); return build()
def lazy(): return Task(torch.nn.LazyLinear(2), torch.nn.functional.cross_entropy), data()
def nomodel(): return Task("model", torch.nn.functional.cross_entropy), data()
def changed(**parts):
    import dataclasses
    task, found = build(); return task, dataclasses.replace(found, **parts)
def unnamed(): return changed(secrets=[s])
def numbered(): return changed(secrets={3: torch.tensor(s)})
def noschema(): return changed(schema="x")
def rounded(): return changed(x=torch.tensor(x).bfloat16())
"""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "mine.py").write_text(TASK)
    return folder


@pytest.mark.parametrize("question", ["layers", "timeline"])
def test_a_question_without_a_plain_loop_does_not_advise_one(
    tasks: Path, tmp_path: Path, question: str
) -> None:
    words = ("--task", "mine:branch", "--ask", question, "--out", tmp_path / "run")
    done = command.run("audit", *words, cwd=tasks)
    assert done.returncode == 2
    assert "torch.func cannot vectorise" in done.stderr
    assert "--allow-loop" not in done.stderr


@pytest.mark.parametrize(
    "args", [("mine:conv",), ("mine:branch", "--allow-loop"), ("mine:talking",)]
)
def test_own_task(tasks: Path, tmp_path: Path, args: tuple[str, ...]) -> None:
    done = command.run(
        "audit", "--task", *args, *SMALL, "--adversary", "forest", "--out", tmp_path / "run",
        "--json", cwd=tasks,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (cell,) = json.loads(done.stdout)["inference"]["cells"]
    assert cell["accumulated"]["auroc"]["value"] > 0.9


def test_defenses_are_compared_with_no_defense(table: Path, tmp_path: Path) -> None:
    args = ("--defense", "sign", "--defense", "noise:std=0.1", "--out", tmp_path / "run", "--json")
    args = (*args, "--rounds", 1)
    done = command.run("audit", table, *BASE, *QUICK, *args)
    assert done.returncode == 0, done.stderr
    cells = [(c["defense"], c["knowledge"]) for c in json.loads(done.stdout)["inference"]["cells"]]
    assert cells == [
        ("none", "static"),
        ("sign", "static"),
        ("sign", "adaptive"),
        ("noise:std=0.1", "static"),
        ("noise:std=0.1", "adaptive"),
    ]
    before = figures(tmp_path / "run")
    assert command.run("audit", table, *BASE, *QUICK, *args).returncode == 0
    assert figures(tmp_path / "run") == before


def test_a_diverging_training_leaves_the_other_defenses(table: Path, tmp_path: Path) -> None:
    """The noise makes training diverge; the tests before and after it remain."""
    defenses = ("--defense", "noise:std=1e30", "--defense", "sign")
    done = command.run(
        "audit", table, *BASE, *QUICK, *defenses, "--out", tmp_path / "run", "--json"
    )
    assert done.returncode == 2
    assert {cell["defense"] for cell in json.loads(done.stdout)["inference"]["cells"]} == {
        "none",
        "sign",
    }
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("refused: ")]
    assert "diverged in round 1" in line
    assert "or weaken the defense 'noise:std=1e+30'" in line
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Requested but not completed" in page
    assert "noise:std=1e+30" in page.split("Requested but not completed")[1].split("</ul>")[0]


def test_one_output_above_0_means_yes(tasks: Path, tmp_path: Path) -> None:
    done = command.run(
        "audit", "--task", "mine:odd", *SMALL, "--adversary", "forest", "--out", tmp_path / "run",
        "--json", cwd=tasks,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (cell,) = json.loads(done.stdout)["inference"]["cells"]
    assert 0 < cell["utility"]["accuracy"]["value"] <= 1


def refused(*words: object, cwd: Path | None = None) -> str:
    """Run a command that must end with one line and exit code 2."""
    done = command.run(*words, cwd=cwd)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert line.startswith("error: ")
    return line


@pytest.mark.process
def test_a_refusal_of_a_real_process_is_one_line() -> None:
    done = command.process("verify", "nothing", "nothing")  # which loads least
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def variant(tmp_path: Path, change) -> Path:
    path = tmp_path / "people.csv"
    people = frame()
    changed = change(people)
    (people if changed is None else changed).to_csv(path, index=False)
    return path


BASE = ("--label", "income", "--secret", "sex")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("nothing.csv", *BASE), "nothing.csv"),
        ((".", *BASE), "folder"),
        (("{task}", *BASE), "mine.py"),
        (("{table}", "--label", "incme", "--secret", "sex"), "did you mean 'income'"),
        (("{table}", "--label", "income", "--secret", "sx"), "did you mean 'sex'"),
        (("{table}", *BASE, "--group", "persons"), "did you mean 'person'"),
        (("{table}", *BASE, "--drop", "hight"), "did you mean 'height'"),
        (("{table}", "--label", "sex", "--secret", "sex"), "both the label and a secret"),
        (("{table}", "--label", "income"), "--secret is missing; name the column"),
        (("{table}", "--secret", "sex"), "that the model predicts; known: 'height', "),
        (("{table}", "--label", "income", "--secret", "age"), "--bins age=N"),
        (("{table}", *BASE, "--bins", "age"), "expected COL=N"),
        (("{table}", *BASE, "--batch-size", 400), "batch size"),
        (("{table}", *BASE, "--batch-size", 60), "lower --batch-size to at most"),
        (("{table}", *BASE, "--batch-size", 0), "--batch-size is 0"),
        (("{table}", *BASE, "--rounds", -1), "--rounds is -1"),
        (("{table}", *BASE, "--trials", 0), "--trials is 0"),
        (("{table}", *BASE, "--shadow", -5), "--shadow is -5"),
        (("{table}", *BASE, "--lr", 0), "--lr is 0"),
        (("{table}", *BASE, "--workers", 0), "--workers is 0"),
        (("{table}", *BASE, "--rounds", "many"), "many"),
        (("{table}", *BASE, "--ask", "proprety"), "did you mean 'property'"),
        (("{table}", *BASE, "--adversary", "woods"), "known: 'forest'"),
        (("{table}", *BASE, "--ask", "property", "--ask", "property"), "names one twice"),
        (("{table}", *BASE, "--device", "cuda:99"), "--device cuda:99"),
        (("{table}", *BASE, "--sede", 1), "o such option"),
        (("{table}", *BASE, "--task", "mine:build"), "either DATA (a table"),
        (BASE, "either DATA (a table"),
        (("{table}", *BASE, "--out", "/dev/null/x"), "cannot write to"),
        (("{table}", *BASE, "--defense", "prun"), "did you mean 'prune'"),
        (("{table}", *BASE, "--defense", "prune:rat=0.5"), "did you mean 'rate'"),
        (("{table}", *BASE, "--defense", "prune:rate=2"), "rate"),
        (("{table}", *BASE, "--defense", "vib:beta=-1"), "vib beta is -1"),
        (("--task", "mine:branch", "--allow-loop", "--defense", "vib"), "nn.Sequential"),
        (("--task", "absent:build"), "cannot import 'absent'"),
        (("--task", "mine"), "expected MODULE:FUNCTION"),
        (("--task", "mine:bild"), "did you mean 'build'"),
        (("--task", "mine:number"), "returned int; expected a function that returns"),
        (("--task", "mine:swapped"), "returned (Dataset, Task)"),
        (("--task", "mine:broken"), "RuntimeError: no weights here"),
        (("--task", "mine:two"), "--secret is missing"),
        (("--task", "mine:two", "--secret", "u"), "--secret is 'u'"),
        (("--task", "mine:build", "--label", "y"), "--label is about a TABLE"),
        (("--task", "mine:batchnorm"), "BatchNorm"),
        (("--task", "mine:dropout"), "eval()"),
        (("--task", "mine:branch"), "--allow-loop"),
        (("--task", "mine:frozen"), "no trainable parameters"),
        (("--task", "mine:onebased"), "no record with code 0"),
        (("--task", "mine:arrays"), "make the Dataset with leakgauge.from_arrays"),
        (("--task", "mine:leaves"), "SystemExit"),
        (("--task", "mine:build", "--hidden", 3), "--hidden is about a TABLE"),
        (("{table}", *BASE, "--trials", 10), "--trials"),
        (("{table}", *BASE, "--lr", "inf"), "--lr is 'inf'"),
        (("{table}", *BASE, "--lr", "nan"), "--lr is 'nan'"),
        (("{table}", *BASE, "--rounds=many"), "'many'"),
        (("{table}", *BASE, "--bins", "age=\u00b2"), "expected COL=N"),
        (("{table}", *BASE, "--device", "meta"), "--device meta"),
        (("--task", "mine:nan"), "NaN"),
        (("--task", "mine:infinite"), "infinit"),
        (("--task", "mine:wide"), "mat"),
        (("--task", "mine:constant"), "one value"),
        (("--task", "mine:lazy"), "run the lazy model once first"),
        (("--task", "mine:nomodel"), "the Task is str; expected a torch.nn.Module"),
        (("--task", "mine:unnamed"), "expected a mapping from names to codes"),
        (("--task", "mine:numbered"), "expected a mapping from names to codes"),
        (("--task", "mine:noschema"), "schema of the Dataset is str"),
        (("--task", "mine:rounded"), "torch.bfloat16"),
        (("{table}", *BASE, "--group", "person", "--drop", "person"), "the group; it is also drop"),
        (("{table}", *BASE, "--bins", "sex=4", "--bins", "sex=2"), "--bins names 'sex' twice"),
        (("{table}", *BASE, "--trials", 10**23), "--trials is"),
        (("{table}", *BASE, "--hidden", 10**11), "of at most 100,000"),
        (("x" * 300, *BASE), "cannot be opened: File name too long"),
    ],
    ids=lambda value: " ".join(map(str, value))[:60] if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_line(args: tuple, says: str, table: Path, tasks: Path) -> None:
    places = {"table": table, "task": tasks / "mine.py"}
    line = refused("audit", *(str(a).format(**places) for a in args), cwd=tasks)
    assert says in line


def test_a_name_that_is_not_text_is_refused_before_the_work(table: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/m\xfcller.csv")
    shutil.copy(table, odd)
    assert "m\ufffdller.csv' is not UTF-8 text; rename the file" in refused("audit", odd, *BASE)


def test_images_take_no_hidden_layers(tmp_path: Path) -> None:
    kinds = np.arange(9) % 2
    np.savez(tmp_path / "im.npz", x=np.zeros((9, 4, 4), np.uint8), label=kinds, secret=kinds)
    roles = ("--label", "label", "--secret", "secret")
    assert "images have a small CNN" in refused("audit", tmp_path / "im.npz", *roles, "--hidden", 7)


def infinite_feature(people: pd.DataFrame) -> None:
    people.loc[3, "height"] = np.inf


def one_secret(people: pd.DataFrame) -> None:
    people["sex"] = "f"


def rare_secret(people: pd.DataFrame) -> None:
    people.loc[:2, "sex"] = "x"


def one_label(people: pd.DataFrame) -> None:
    people["income"] = "low"


def rare_label(people: pd.DataFrame) -> None:
    people.loc[0, "income"] = "huge"


def missing_secret(people: pd.DataFrame) -> None:
    people.loc[:4, "sex"] = None


def no_rows(people: pd.DataFrame) -> pd.DataFrame:
    return people.iloc[:0]


def no_features(people: pd.DataFrame) -> pd.DataFrame:
    return people[["sex", "income"]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (infinite_feature, "'height'"),
        (one_secret, "one value"),
        (rare_secret, "'x'"),
        (one_label, "one value"),
        (rare_label, "'huge'"),
        (missing_secret, "--drop-missing"),
        (no_rows, "empty"),
        (no_features, "feature"),
    ],
)
def test_bad_table_is_one_line(change, says: str, tmp_path: Path) -> None:
    assert says in refused("audit", variant(tmp_path, change), *BASE, *SMALL)


def test_missing_features_are_not_refused(tmp_path: Path) -> None:
    def some_missing(people: pd.DataFrame) -> None:
        people.loc[::7, "height"] = np.nan
        people.loc[::5, "town"] = None
        people.loc[:4, "sex"] = None

    path = variant(tmp_path, some_missing)
    done = command.run(
        "audit", path, *BASE, *QUICK, "--drop-missing", "--out", tmp_path / "run", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert "5 rows" in done.stderr


def test_a_folder_of_another_run_is_refused(finished: tuple[Path, dict], table: Path) -> None:
    out, _ = finished
    before = (out / "measurements.jsonl").read_bytes()
    args = ("audit", table, *BASE, "--group", "person", *SMALL, "--out", out)
    assert "holds another run" in refused(*args, "--seed", 1)
    assert (out / "measurements.jsonl").read_bytes() == before


def test_a_folder_with_other_files_is_refused(table: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "thesis.tex" in refused("audit", table, *BASE, "--out", tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cells/inference/measurements.jsonl", b"\xff\xfe"),
        ("cells/inference/measurements.jsonl", b"{}\n"),
        ("cells/inference/cell.yaml", b"{}\n"),
        ("run.yaml", b"\xff\xfe"),
        ("run.yaml", b"a: [\n"),
        ("run.yaml", b"command: audit\n"),
    ],
)
def test_a_damaged_run_is_one_line(
    finished: tuple[Path, dict], tmp_path: Path, name: str, content: bytes
) -> None:
    shutil.copytree(finished[0], tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(content)
    assert Path(name).name in refused("report", tmp_path / "run")


def test_report_of_nothing(tmp_path: Path) -> None:
    assert "no such folder" in refused("report", tmp_path / "absent")
    assert "run.yaml" in refused("report", tmp_path)


@pytest.mark.process
def test_version_and_help() -> None:
    assert command.process("--version").stdout.strip()
    assert "audit" in command.run("--help").stdout
    assert command.run().stdout == command.run("--help").stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--label", "a", "--label", "b"), "--label is given 2 times ('a', 'b'); give it once"),
        (("--secret", "sex", "--secret", "sex"), "--secret names one twice: sex, sex"),
        (("--group", "a", "--group", "a"), "--group is given 2 times"),
        (("--seed", -1), "--seed is -1; expected a whole number of 0 or more"),
    ],
)
def test_a_repeated_option_is_not_ignored_silently(args: tuple[object, ...], says: str) -> None:
    assert says in refused("audit", "randhie", *args)

"""Updates that are kept and read back, against the tensors that went in."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from leakgauge.core.checks import InputError
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Dataset, Task
from leakgauge.integrations.kept import Exchange, Keeper, file_name
from leakgauge.integrations.kept_reading import read_kept
from leakgauge.integrations.training_settings import LocalTraining
from leakgauge.training import Participant, Protocol, State
from leakgauge.training.federation import Round, federation

RATE, SIZE, EXAMPLES = 0.1, 4, 12


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def rounds(count: int = 2) -> list[Round]:
    """A federation of two participants on a model with running statistics."""
    task = Task(net())
    x = torch.randn(2 * EXAMPLES, 3, generator=torch_stream(0, "x"))
    y = (x[:, 0] > 0).long()
    data = Dataset(x, y)
    parts = [data.rows(torch.arange(at, at + EXAMPLES)) for at in (0, EXAMPLES)]
    protocol = Protocol(rounds=count, lr=RATE, batch_size=SIZE, epochs=2)
    people = [Participant(one) for one in parts]
    return list(federation(task, State.of(task.model), people, protocol, seed=0))


def exchanges(played: list[Round]) -> list[Exchange]:
    config = {"lr": RATE, "local-epochs": 2, "batch-size": SIZE, "token": "secret"}
    return [
        Exchange(one.number, str(who), one.received[who], one.uploaded(who), examples=EXAMPLES,
                 config=config, metrics={"train_loss": 0.5, "name": "me"})
        for one in played
        for who in one.sent
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keeper = Keeper(tmp_path / "kept")
    for one in exchanges(rounds()):
        keeper.keep(one)
    return tmp_path / "kept"


def test_updates_come_back_as_they_went_in(folder: Path) -> None:
    kept, played = read_kept(folder), rounds()
    assert (kept.rounds, kept.clients, len(kept.updates)) == ([1, 2], ["0", "1"], 4)
    for one in kept.updates:
        was = played[one.number - 1]
        update, sent = one.update(net()), was.sent[int(one.client)]
        assert (update.lr, update.steps, update.batch_size, update.records) == (
            RATE, 6, SIZE, EXAMPLES,
        )  # fmt: skip
        assert list(update.before) == [name for name, _ in net().named_parameters()]
        for name, leaf in sent.as_gradient().items():
            torch.testing.assert_close(update.as_gradient()[name], leaf, rtol=0, atol=0)
        for aside in ("buffers", "held"):
            for name, leaf in getattr(sent, aside).items():
                assert torch.equal(getattr(update, aside)[name], leaf), (aside, name)


def test_a_round_comes_back_with_the_state_after_it(folder: Path) -> None:
    kept, played = read_kept(folder), rounds()
    for number in (1, 2):  # the state after the first was kept with the second
        again, was = kept.round(number, net()), played[number - 1]
        assert again.sent.keys() == was.sent.keys()
        for name, leaf in was.state.shared.items():
            torch.testing.assert_close(again.state.shared[name], leaf)


def test_clients_share_the_file_of_the_model_that_they_got(folder: Path) -> None:
    assert len(list((folder / "models").iterdir())) == 2
    assert len(list((folder / "rounds").rglob("*.safetensors"))) == 4


def test_texts_of_a_configuration_are_not_kept(folder: Path) -> None:
    text = "".join(path.read_text() for path in folder.rglob("*.yaml"))
    assert "train_loss" in text
    assert "secret" not in text
    assert "name: me" not in text


def test_only_chosen_rounds_are_kept(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, rounds=[2])
    made = [keeper.keep(one) for one in exchanges(rounds())]
    assert [path is not None for path in made] == [False, False, True, True]
    assert read_kept(tmp_path).rounds == [2]


def test_a_repeated_round_replaces_what_was_kept(folder: Path) -> None:
    one = exchanges(rounds())[0]
    changed = {name: leaf + 1 for name, leaf in one.after.items()}
    Keeper(folder).keep(replace(one, after=changed, examples=9))
    kept = read_kept(folder)
    assert len(kept.updates) == 4
    assert kept.updates[0].examples == 9
    assert torch.equal(kept.updates[0].tensors()[1]["2.bias"], changed["2.bias"])


def test_what_a_kill_left_is_not_read_and_goes_away(folder: Path) -> None:
    one = folder / "rounds" / "0001" / "0.yaml"
    one.unlink()  # it is written last
    part = folder / "rounds" / "0001" / ".1.safetensors.77.part"
    part.write_bytes(b"half")
    assert read_kept(folder).updates[0].name == "round 1, client 1"
    Keeper(folder).keep(exchanges(rounds())[0])
    assert len(read_kept(folder).updates) == 4
    assert not part.exists()


def test_the_size_of_the_folder_is_bounded(tmp_path: Path) -> None:
    first, second, *_ = exchanges(rounds())
    Keeper(tmp_path).keep(first)
    held = sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors"))
    full = Keeper(tmp_path, max_size=f"{held + 10} B")
    with pytest.raises(InputError, match=r"round 1, client 1: not kept, since .* raise max_size"):
        full.keep(second)
    assert len(read_kept(tmp_path).updates) == 1
    assert full.keep(first) is not None  # the same again needs no room


def test_damage_is_seen(folder: Path) -> None:
    path = folder / "rounds" / "0001" / "0.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match=r"0\.safetensors' is damaged or was changed"):
        read_kept(folder).updates[0].update(net())
    about = path.with_suffix(".yaml")
    about.write_text(about.read_text().replace("examples: 12", "examples: 13"))
    with pytest.raises(InputError, match="does not match its checksum"):
        read_kept(folder)


def test_a_change_of_weights_is_an_update_of_its_own_kind(tmp_path: Path) -> None:
    one = exchanges(rounds())[0]
    change = {name: leaf - one.before[name] for name, leaf in one.after.items()}
    Keeper(tmp_path).keep(replace(one, after=change, kind="change"))
    update = read_kept(tmp_path).updates[0].update(net())
    assert update.kind == "change"
    torch.testing.assert_close(update.after()["0.weight"], one.after["0.weight"])
    assert torch.equal(update.values["0.weight"], change["0.weight"])


def test_tensors_without_names_are_in_the_model_s_order(tmp_path: Path) -> None:
    one = exchanges(rounds())[0]
    order = list(net().state_dict())
    before, after = (
        {str(at): part[name] for at, name in enumerate(order)} for part in (one.before, one.after)
    )
    Keeper(tmp_path).keep(replace(one, before=before, after=after))
    update = read_kept(tmp_path).updates[0].update(net())
    assert torch.equal(update.after()["0.weight"], one.after["0.weight"])
    with pytest.raises(InputError, match="9 tensors without names came for Linear"):
        read_kept(tmp_path).updates[0].update(nn.Linear(3, 2))


def test_momentum_scales_the_change_to_a_mean_gradient() -> None:
    """On a loss with a constant gradient the change says it exactly."""
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    for _ in range(7):
        optimizer.zero_grad()
        (3 * weight).backward()
        optimizer.step()
    counts = [sum(0.9**past for past in range(left)) for left in range(1, 8)]
    scale = 0.1 * sum(counts)  # step i of 7 counts 1 + m + ... + m^(7 - i) times
    torch.testing.assert_close(-weight.detach() / scale, torch.tensor([3.0]))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"rounds": [0]}, "number of a round to keep is 0"),
        ({"max_size": "much"}, "expected a size"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, made: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Keeper(tmp_path, **made)  # type: ignore[arg-type]


def test_a_momentum_of_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"momentum is 1\.0"):
        LocalTraining(momentum=1.0)


def test_an_empty_folder_and_unknown_rounds_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        read_kept(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="keeps no update"):
        read_kept(tmp_path / "empty")
    with pytest.raises(InputError, match="round 7 was not kept; there are 1, 2"):
        read_kept(folder).only(rounds=[7])
    with pytest.raises(InputError, match="no client '5' was kept"):
        read_kept(folder).only(clients=["5"])


def test_no_client_s_name_leaves_the_folder() -> None:
    names = ["0", "a/b", "a:b", "../x", "", ".lock", "x" * 300]
    made = [file_name(name) for name in names]
    assert len(set(made)) == len(names)
    assert not any("/" in one or one.startswith(".") for one in made)
    assert max(map(len, made)) <= 90


def test_a_configuration_may_name_the_optimizer_and_no_code() -> None:
    found = LocalTraining.found_in({"Optimizer": "torch.optim.AdamW", "lr": 0.001, "momentum": 0.9})
    assert (found.named_optimizer, found.momentum) == ("adamw", None)
    assert LocalTraining.found_in({"optimizer": "os:system"}).named_optimizer is None
    assert LocalTraining.found_in({"optimizer": "SGD", "momentum": 0.9}).named_optimizer == (
        "sgd:momentum=0.9"
    )
    assert found.updated(LocalTraining(momentum=0.9)).named_optimizer == "sgd:momentum=0.9"
    with pytest.raises(InputError, match="optimizer of clients"):
        LocalTraining(optimizer="os:system")


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"optimizer": "AdamW", "weight-decay": 0.1}, "adamw:weight_decay=0.1"),
        ({"momentum": 0.9, "nesterov": True}, "sgd:momentum=0.9,nesterov=1"),
        ({"momentum": 0.9, "nesterov": False}, "sgd:momentum=0.9"),
        ({"optimizer": "sgd", "proximal-mu": 0.01}, "sgd:proximal_mu=0.01"),
        ({"optimizer": "rmsprop", "momentum": 0.5}, "rmsprop:momentum=0.5"),
        ({"proximal_mu": 0.01, "weight_decay": 0.1}, None),  # of an optimizer that is not named
    ],
)
def test_settings_of_the_optimizer_are_read_from_a_configuration(
    config: dict[str, object], named: str | None
) -> None:
    assert LocalTraining.found_in(config).named_optimizer == named


def test_a_named_optimizer_says_all_but_the_term_of_fedprox() -> None:
    """The server sends ``proximal-mu``, and clients choose their optimizer."""
    found = LocalTraining.found_in({"momentum": 0.9, "weight-decay": 0.1, "proximal-mu": 0.01})
    assert found.named_optimizer == "sgd:momentum=0.9,weight_decay=0.1,proximal_mu=0.01"
    adam = found.updated(LocalTraining(optimizer="adam"))
    assert adam.named_optimizer == "adam:proximal_mu=0.01"
    with pytest.raises(InputError, match=r"proximal mu is -1"):
        LocalTraining(proximal_mu=-1)

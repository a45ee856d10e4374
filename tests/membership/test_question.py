"""Membership as a question: asked by audit, resumed, shown, printed, and compared with defenses."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from leakgauge.core.types import Dataset
from leakgauge.data.source import Source
from leakgauge.membership.adversaries.supervised import fit_platt
from leakgauge.membership.metrics import LEAKAGE, MEMBERS_NORM, OTHERS_NORM, TPR_AT_01_FPR
from leakgauge.membership.question import QUESTION
from leakgauge.membership.run import answering
from leakgauge.membership.run.at_risk import read_at_risk
from leakgauge.membership.run.preparing import prepare
from leakgauge.membership.spec import MembershipSpec
from leakgauge.results.measurements import ACCUMULATED, HEADLINE
from leakgauge.results.scores import TPR_AT_1_FPR
from leakgauge.runs.audit import AuditRun, describe, prepare_all, run_audit
from leakgauge.runs.question import Silent
from leakgauge.runs.sources import task_source
from support import command
from support.worlds import network, noise

pytestmark = pytest.mark.usefixtures("blank_charts")

ATTACKS = ("label-loss:epochs=3", "loss", "gradients:epochs=3", "kmeans")


@pytest.fixture(scope="module")
def source() -> Source:
    return task_source(network(seed=0), noise(800, seed=0))


def asked(out: Path, source: Source, **settings) -> AuditRun:
    wanted = {"adversary": ATTACKS, "rounds": 15, "batch_size": 16, "lr": 0.003, **settings}
    spec = MembershipSpec(task="mine:build", **wanted)
    resolved = prepare_all({QUESTION.name: (QUESTION, spec)}, source=source)
    return run_audit(out, describe("audit", resolved), resolved, progress=Silent(), workers=1)


def figures(audit: AuditRun) -> list:
    return [replace(one, seconds=0.0) for one in audit.measurements]


@pytest.fixture(scope="module")
def plain(source: Source, tmp_path_factory) -> AuditRun:
    return asked(tmp_path_factory.mktemp("plain") / "run", source)


@pytest.fixture(scope="module")
def defended(source: Source, tmp_path_factory) -> AuditRun:
    both = ("none", "dpsgd:clip=1,noise=4")
    return asked(
        tmp_path_factory.mktemp("defended") / "run",
        source,
        defense=both,
        adversary=ATTACKS[:1],
        rounds=10,
    )


def folder(audit: AuditRun) -> Path:
    return audit.path / "cells" / QUESTION.name


def test_every_attack_has_every_figure_and_one_is_the_headline(plain: AuditRun) -> None:
    for attack in ATTACKS:
        found = {one.metric for one in plain.measurements if one.adversary == attack}
        assert found >= {"auroc", "success", "advantage"}
        assert not found & {TPR_AT_1_FPR, TPR_AT_01_FPR}, "80 non-members show no such rate"
    heads = {one.adversary for one in plain.measurements if one.round == HEADLINE}
    aurocs = {
        one.adversary: one.held_out
        for one in plain.measurements
        if one.metric == "auroc" and one.round == ACCUMULATED
    }
    assert heads == {max(aurocs, key=aurocs.__getitem__)}


def test_norms_are_those_of_both_kinds_by_epoch(plain: AuditRun) -> None:
    for metric in (MEMBERS_NORM, OTHERS_NORM):
        found = {one.round: one.estimate for one in plain.measurements if one.metric == metric}
        assert list(found) == sorted(found)
        assert list(found)[-1] == 15
    last = {one.metric: one.estimate for one in plain.measurements if one.round == 15}
    assert last[MEMBERS_NORM].high < last[OTHERS_NORM].low, "members are memorised"


def test_a_run_that_is_repeated_attacks_nothing_again(
    source: Source, plain: AuditRun, monkeypatch
) -> None:
    monkeypatch.setattr(answering, "run_attack", lambda *_, **__: pytest.fail("attacked again"))
    assert figures(asked(plain.path, source)) == figures(plain)


def test_what_was_finished_before_a_stop_is_kept(
    source: Source, plain: AuditRun, tmp_path: Path, monkeypatch
) -> None:
    attacked = []
    whole = answering.run_attack

    def stops(attack, *given, **named):
        attacked.append(attack.name)
        if len(attacked) == 3:
            raise KeyboardInterrupt
        return whole(attack, *given, **named)

    monkeypatch.setattr(answering, "run_attack", stops)
    with pytest.raises(KeyboardInterrupt):
        asked(tmp_path / "run", source)
    monkeypatch.setattr(answering, "trained_target", forbidden_training(answering.trained_target))
    again = asked(tmp_path / "run", source)
    assert figures(again) == figures(plain)
    assert sorted(attacked) == sorted([*ATTACKS, attacked[2]])


def forbidden_training(whole):
    def world(data, split, recipe, *rest):
        object.__setattr__(recipe, "epochs", lambda *_: pytest.fail("trained again"))
        return whole(data, split, recipe, *rest)

    return world


def test_a_defense_lowers_leakage_and_costs_utility(defended: AuditRun) -> None:
    def head(defense: str, knowledge: str) -> float:
        return next(
            one.estimate.value
            for one in defended.measurements
            if (one.round, one.metric) == (HEADLINE, "auroc")
            and (one.defense, one.knowledge) == (defense, knowledge)
        )

    noisy = "dpsgd:clip=1,noise=4"
    assert head("none", "static") > 0.9
    assert max(head(noisy, "static"), head(noisy, "adaptive")) < 0.65
    section = QUESTION.section(defended.answers["membership"], folder(defended))
    assert section.effect is not None
    assert noisy in section.effect.text
    assert "from 0.9" in section.effect.text


def test_the_records_at_risk_are_members_by_their_row(plain: AuditRun, source: Source) -> None:
    spec = MembershipSpec(task="mine:build", rounds=15, batch_size=16, lr=0.003)
    split = prepare(spec, source).roles.splits[0]
    found = read_at_risk(folder(plain))["none"]
    assert len(found) == 10
    assert {one.row for one in found} <= set(split.target_members.tolist())
    odds = [one.odds for one in found]
    assert odds == sorted(odds, reverse=True)
    assert odds[0] > 1


def test_calibrated_odds_are_as_often_right_as_they_say() -> None:
    rng = np.random.default_rng(0)
    member = rng.random(4000) < 0.5
    scores = np.where(member, 1.0, -1.0) + rng.normal(size=4000)  # log odds are twice the score
    found = fit_platt(7 * scores + 3, member)(7 * np.array([-1.0, 0.0, 1.0]) + 3)
    assert found == pytest.approx([-2, 0, 2], abs=0.15)


def test_users_are_members_or_others_as_a_whole() -> None:
    users = torch.arange(800) // 4
    data = noise(800, seed=0)
    source = task_source(network(seed=0), Dataset(data.x, data.y, users=users))
    split = prepare(MembershipSpec(task="mine:build"), source).roles.splits[0]
    assert not set(users[split.members].tolist()) & set(users[split.target_non_members].tolist())


def test_the_section_says_what_white_box_access_adds(plain: AuditRun) -> None:
    answer = plain.answers["membership"]
    section = QUESTION.section(answer, folder(plain))
    assert section == QUESTION.section(answer, folder(plain))
    for anchor, _ in section.nav:
        assert f'id="{anchor}"' in section.html or anchor.endswith("-defenses")
    assert section.rows[0].ask == "membership"
    assert section.next_command == (
        "leakgauge audit --ask membership --task mine:build --adversary label-loss:epochs=3 "
        "--adversary loss --adversary gradients:epochs=3 --adversary kmeans "
        "--defense dpsgd:clip=1,noise=1 --rounds 15 --batch-size 16 --lr 0.003"
    )


def test_json_follows_the_contract_of_cells(tmp_path: Path) -> None:
    ended = command.run(
        "audit", "randhie", "--ask", "membership", "--rounds", 3, "--adversary", "loss",
        "--adversary", "label-loss:epochs=2", "--adversary", "white-box:epochs=2",
        "--set", "membership.size=500", "--json", "--out", tmp_path / "run",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)["membership"]
    assert {one["adversary"] for one in said["cells"]} == {
        "loss", "label-loss:epochs=2", "white-box:epochs=2",
    }  # fmt: skip
    for one in said["cells"]:
        assert one["ask"] == "membership"
        assert set(one) >= {"defense", "knowledge", "trials", "accumulated", "rounds", "utility"}
        assert set(one["accumulated"]) == set(LEAKAGE) - {TPR_AT_01_FPR}
        assert set(one["accumulated"]["auroc"]) == {"value", "low", "high", "chance"}
    assert said["headline"][0]["ask"] == "membership"
    assert len(said["headline"][0]["at_risk"]) == 10

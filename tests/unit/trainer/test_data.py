from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dflash_trainer.batch import Rows
from dflash_trainer.config import Config, DataConfig
from dflash_trainer.exits import DataError
from dflash_trainer.target_train import Corpus, checksum, prepare
from dflash_trainer.text import load_bytes


def corpus(config: Config) -> Corpus:
    length = config.data.prompt_tokens + config.data.response_tokens
    tokens = torch.randint(256, (config.data.rows, length), generator=torch.Generator().manual_seed(3))
    return Corpus(tokens, tokens[:2, : config.data.prompt_tokens], config.data.prompt_tokens, "digest")


def test_pythons_own_documentation_is_there_and_its_end_is_held_out() -> None:
    train, held_out = load_bytes(DataConfig(), least=100)
    assert len(train) + len(held_out) > 400_000
    assert len(held_out) / (len(train) + len(held_out)) == pytest.approx(0.05, abs=0.001)


def test_missing_short_and_undecodable_texts_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt: no such file"):
        load_bytes(DataConfig(text=str(tmp_path / "none.txt")), least=10)
    (tmp_path / "bad.txt").write_bytes(b"ok\xff")
    with pytest.raises(DataError, match="not UTF-8 at byte 2"):
        load_bytes(DataConfig(text=str(tmp_path / "bad.txt")), least=1)
    (tmp_path / "short.txt").write_text("abc" * 20)
    with pytest.raises(DataError, match="held-out part has 3 bytes, 10 are needed"):
        load_bytes(DataConfig(text=str(tmp_path / "short.txt")), least=10)


def test_a_micro_batch_is_a_function_of_step_and_number_alone(config: Config) -> None:
    rows = Rows(corpus(config), config)
    first = rows.micro(3, 1)
    rows.micro(1, 0)
    again = Rows(corpus(config), config).micro(3, 1)
    assert torch.equal(first.tokens, again.tokens)
    assert torch.equal(first.anchor, again.anchor)


def test_a_steps_micro_batches_are_different_rows_and_an_epoch_visits_all(config: Config) -> None:
    rows = Rows(corpus(config), config)
    seen = [i for step in (1, 2, 3) for micro in (0, 1) for i in rows.ids(step, micro)[1]]
    assert sorted(seen) == list(range(12))
    assert rows.ids(4, 0)[0] == 1


def test_packed_rows_start_their_positions_anew_and_keep_anchors_in_each_document(config: Config) -> None:
    packed = replace(config, data=replace(config.data, docs_per_row=2))
    micro = Rows(corpus(packed), packed).micro(1, 0)
    assert micro.tokens.shape == (2, 48)
    assert micro.positions[0, 24] == 0
    assert micro.anchor.shape == (2, 8)
    assert bool((micro.doc[0, micro.anchor[0, 4:]] == 1).all())


def test_the_cache_gives_back_the_same_target_and_another_setting_another(tmp_path: Path, config: Config) -> None:
    ticks: list[int] = []
    made = prepare(config, tmp_path, torch.device("cpu"), lambda: ticks.append(1))
    assert ticks
    ticks.clear()
    found = prepare(config, tmp_path, torch.device("cpu"), lambda: ticks.append(1))
    assert not ticks
    assert checksum(made[0]) == checksum(found[0])
    assert torch.equal(made[1].tokens, found[1].tokens)
    other = prepare(replace(config, target=replace(config.target, seed=9)), tmp_path, torch.device("cpu"), lambda: None)
    assert checksum(other[0]) != checksum(made[0])


def test_a_torn_cache_is_made_again(tmp_path: Path, config: Config) -> None:
    made = prepare(config, tmp_path, torch.device("cpu"), lambda: None)
    (folder,) = tmp_path.iterdir()
    (folder / "complete").unlink()
    (folder / "corpus.safetensors").write_bytes(b"torn")
    again = prepare(config, tmp_path, torch.device("cpu"), lambda: None)
    assert torch.equal(made[1].tokens, again[1].tokens)
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_responses_are_the_targets_own_choices(tmp_path: Path, config: Config) -> None:
    target, made = prepare(config, tmp_path, torch.device("cpu"), lambda: None)
    row = made.tokens[0]
    for at in range(config.data.prompt_tokens, len(row)):
        assert int(target(row[None, :at]).logits[0, -1].argmax()) == int(row[at])

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dflash_trainer.config import PRESETS, Config
from dflash_trainer.config_load import flat, from_flat, load
from dflash_trainer.exits import ConfigError


def test_nothing_given_is_the_demo() -> None:
    assert load(None) == Config()


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_loads(preset: str) -> None:
    assert load(None, preset=preset).preset == preset


def test_the_file_overrides_the_preset_and_set_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "train.toml"
    file.write_text('preset = "tiny"\nsteps = 7\n[optim]\nlr = 1e-2\n[draft]\ntaps = [0, 2]\n')
    config = load(file, ["steps=9", "layout.race_mitigation=none", "optim.clip=2"])
    assert (config.steps, config.optim.lr, config.optim.clip) == (9, 1e-2, 2.0)
    assert config.draft.taps == (0, 2)
    assert config.layout.race_mitigation == "none"
    assert config.target.hidden == 64  # from the preset


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[draft]\nblok = 8\n", ["train.toml", "draft.blok", "unknown key", "did you mean draft.block?"]),
        ("stepps = 8\n", ["stepps", "did you mean steps?"]),
        ("[drafter]\nblock = 8\n", ["drafter", "unknown key"]),
        ("steps = 'many'\n", ["train.toml: steps", "want a whole number", "'many'"]),
        ("[optim]\nlr = true\n", ["optim.lr", "want a number"]),
        ("[draft]\ntaps = ['a']\n", ["draft.taps", "want a whole number"]),
        ("optim = 3\n", ["optim", "want a section"]),
        ("[steps]\na = 3\n", ["steps", "not a section"]),
        ("steps = \n", ["train.toml", "not TOML"]),
        (f"steps = {'9' * 5000}\n", ["train.toml", "not TOML", "4300 digits"]),
        (f"steps = {'[' * 3000}{']' * 3000}\n", ["train.toml", "nested too deeply"]),
        (f"steps = 0x{'f' * 5000}\n", ["train.toml", "steps", "want a whole number, got one of 20000 bits"]),
        (f"[optim]\nlr = 1{'0' * 400}\n", ["optim.lr", "want a number, got one of"]),
        (f"[optim]\nlr{'.a' * 3000} = 1\n", ["optim.lr", "want a value, not a section"]),
        ("preset = 'huge'\n", ["preset", "huge", "demo"]),
        ("[layout]\nworkers = 'ranks'\n", ["layout.workers", "want one of threads, processes"]),
        (
            "[layout]\nworkers = 'processes'\nrace_mitigation = 'none'\n",
            ["layout.race_mitigation", "'none' is about threads"],
        ),
        ("[draft]\ntaps = [3]\n", ["draft.taps", "last"]),
        ("[draft]\ntaps = [1, 0]\n", ["draft.taps", "rising"]),
        ("[draft]\ntaps = [9]\n", ["draft.taps", "no layer of a 4-layer target"]),
        ("[draft]\ntaps = []\ntap_count = 2\n", ["draft.tap_count"]),
        ("[optim]\nmicro_rows = 3\n", ["optim.micro_rows", "do not divide"]),
        ("[optim]\nbatch_rows = 1024\n", ["optim.batch_rows", "data.rows"]),
        ("[checkpoint]\nkeep = 1\n", ["checkpoint.keep", "at least 2"]),
        ("[limits]\nstall_s = -1\n", ["limits.stall_s", "0 or more"]),
        ("steps = 0\n", ["steps", "more than 0"]),
        ("[eval]\nprompts = 0\n", ["eval.prompts", "more than 0, got 0"]),
        ("[optim]\nwarmup_steps = -2\n", ["optim.warmup_steps", "0 or more, got -2"]),
        ("[layout]\nrace_mitigation = 'x'\n", ["layout.race_mitigation", "exec-lock"]),
    ],
)
def test_a_mistake_is_answered_with_place_key_and_help(tmp_path: Path, text: str, parts: list[str]) -> None:
    file = tmp_path / "train.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert all(part in str(caught.value) for part in parts), caught.value


def test_a_missing_file_and_a_malformed_setting_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="--set steps: want key=value"):
        load(None, ["steps"])
    with pytest.raises(ConfigError, match=r"--set optim\.lrr=1: optim\.lrr: unknown key \(did you mean optim\.lr\?\)"):
        load(None, ["optim.lrr=1"])


def test_the_flat_form_loads_back_to_the_same_settings() -> None:
    config = load(None, ["steps=3"], preset="tiny")
    text = [f"{key}={_toml(value)}" for key, value in flat(config).items()]
    assert load(None, text) == config
    assert from_flat(json.loads(json.dumps(flat(config)))) == config


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)

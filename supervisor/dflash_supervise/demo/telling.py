"""What the demo prints: one line an event with the time since the start, and the closing table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dflash_supervise.cli import marks, table, words
from dflash_supervise.cli.say import Style
from dflash_supervise.demo.story import Cure, LogLine, Story

MARGIN = 7  # columns that the time takes
_LOSS_EVERY_STEPS = 10


def opening(policy: Mapping[str, Any], usual: Mapping[str, Any], config: str, style: Style) -> list[str]:
    """What will be seen, and that the limits are not the usual ones."""
    seen = float(policy["suspect_floor_s"])
    default = float(usual["suspect_floor_s"])
    text = (
        "A small target and its DFlash drafter are trained on this machine's CPU. One crash and one hang are injected; "
        "both shall be seen, named and cured from the last checkpoint, without anybody's help."
    )
    limits = (
        f"THE LIMITS ARE SHORTENED for this demo: no step for {seen:g} s is suspected and confirmed at "
        f"{seen * float(policy['confirm_factor']):g} s; usual are {default:g} s and "
        f"{default * float(usual['confirm_factor']):g} s ({config})."
    )
    return [style.paint("dflash-supervise demo", "bold"), *style.wrap(text, 2), *style.wrap(limits, 2), ""]


def dashboard(link: str, state: str, style: Style) -> list[str]:
    """The link logs in once and for a minute; the line below it makes another."""
    again = f"DFLASH_SUPERVISE_STATE_DIR={state} {words.command('open')}"
    return [f"dashboard  {link}", style.paint(f"           (logs in once; another link: {again})", "dim"), ""]


def log_line(line: LogLine, style: Style) -> str | None:
    """Lines of the trainer that are worth a line of the demo."""
    match line.part:
        case "target" if "pretrain" in line.fields:
            return f"target  {line.fields['pretrain']:>8}   loss {line.fields.get('loss', '-')}"
        case "eval":
            same = line.fields.get("identical", "-")
            tau = style.paint(f"tau {float(line.fields['tau']):.2f}", "cyan")
            return f"accept  step {line.fields.get('step', '-'):>4}   {tau}, {same} outputs as plain greedy decoding"
        case "train" if int(line.fields["step"]) % _LOSS_EVERY_STEPS == 0:
            speed = line.fields.get("tok/s", "-")
            return f"train   step {line.fields['step']:>4}   loss {line.fields.get('loss', '-')}   tok/s {speed}"
        case "checkpoint" if "resumed" in line.fields:
            return f"attempt {line.attempt} goes on from the checkpoint of step {line.fields.get('step', '-')}"
        case "fault":
            what = f"fault   {line.fields.get('injecting')} injected at step {line.fields.get('step')}"
            return style.paint(what, "red", "bold")
        case _:
            return None


def verdict(record: Mapping[str, Any], cure: Cure | None, style: Style) -> list[str]:
    """A change of verdict; the one that a fault got first also says how long it took."""
    name = str(record.get("verdict"))
    cause = record.get("cause") or "none"
    word = marks.verdict_word(record) + (f", {cause}" if cause != "none" else "")
    after = ""
    if cure is not None and cure.verdict_after_s is not None:
        after = style.paint(f"   {words.duration(cure.verdict_after_s)} after the fault", "bold")
    sign = marks.verdict_sign(name, style)
    narrow = replace(style, width=style.width - MARGIN)
    return [
        f"{sign} {style.paint(word, *marks.verdict_colours(name))}{after}",
        *narrow.wrap(str(record.get("sentence") or ""), 2),
    ]


def cured(cure: Cure, style: Style) -> str:
    assert cure.next_step_after_s is not None
    after = style.paint(f"{words.duration(cure.next_step_after_s)} after the fault", "bold")
    return f"{style.paint('cured', 'green', 'bold')}   step {cure.next_step}   {after}"


def closing(story: Story, took_s: float, style: Style) -> list[str]:
    """The table of faults, and the two curves in a line each."""
    body = [
        [
            cure.expected.shown,
            str(cure.expected.step),
            _verdict(cure),
            words.duration(cure.verdict_after_s),
            words.duration(cure.next_step_after_s),
            words.UNKNOWN if cure.resumed_step is None else str(cure.resumed_step),
        ]
        for cure in story.cures
    ]
    header = ("FAULT", "AT", "VERDICT", "SEEN", "NEXT STEP", "FROM")
    lines = table.rows(header, body, style=style, right=frozenset({1, 3, 4, 5}))
    lines.append(style.paint("seen, next step: time since the fault; at, from: steps (a fault, a checkpoint)", "dim"))
    lines.append("")
    means = story.loss_means()
    if means is not None:
        lines.append(f"loss      {means[0]:.3f} \u2192 {means[1]:.3f}   (means of the first and last ten steps)")
    if len(story.taus) >= 2:
        same = f"; {story.identical} outputs as plain greedy" if story.identical else ""
        rise = f"{story.taus[0][1]:.2f} \u2192 {story.taus[-1][1]:.2f}"
        lines.append(f"tau       {rise}   (tokens accepted a round{same})")
    lines.append(f"attempts  {story.attempts}, ended as {story.verdict}, {words.duration(took_s)} in all")
    return lines


def _verdict(cure: Cure) -> str:
    if cure.verdict is None:
        return "none"
    return cure.verdict + (f", {cure.cause}" if cure.cause not in (None, "none") else "")

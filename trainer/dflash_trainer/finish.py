"""The end of a run that went well: export, load the export back, measure it, mark completion."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

from dflash_trainer import export, log, progress
from dflash_trainer.files import sync_file, sync_folder
from dflash_trainer.session import Session, append_metrics, evaluate


def finish(session: Session) -> None:
    """Write export/, evaluate what was written, write done.json, phase done."""
    session.reporter.phase("finishing")
    folder = _export(session)
    reloaded = export.read(folder, session.config, session.taps)
    for (name, ours), (_, theirs) in zip(session.masters.named_parameters(), reloaded.named_parameters(), strict=True):
        assert bool((ours.detach().cpu().bfloat16().float() == theirs).all()), f"the export changed {name}"
    got = evaluate(session, reloaded.to(session.layout.lead))
    took_s = time.monotonic() - session.began_at
    result: dict[str, object] = {
        "step": session.step,
        "tokens": session.tokens,
        "loss": session.loss,
        "tau": got.pooled,
        "tau_per_prompt": got.per_prompt,
        "tau_start": session.tau_start,
        "identical": got.identical + got.ties,
        "prompts": got.prompts,
        "export": str(folder),
    }
    append_metrics(session, {"final": True, **result})
    log.info(
        "done",
        f"step={session.step} tau_start={session.tau_start:.3f} tau={got.pooled:.3f} took_s={took_s:.1f}",
    )
    options = {"method": "dflash", "model": str(folder), "num_speculative_tokens": session.config.draft.block - 1}
    log.info("serve", f"vllm serve TARGET --speculative-config '{json.dumps(options)}'")
    progress.write_done(session.attempt, result)
    session.reporter.phase("done")


def _export(session: Session) -> Path:
    """A folder whose name says dflash: servers pick the method by it."""
    folder = session.attempt.output / "export" / f"dflash-{session.attempt.run}"
    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    export.write(beside, session.masters, session.config, session.taps)
    for path in beside.iterdir():
        sync_file(path)
    sync_folder(beside)
    if folder.exists():
        shutil.rmtree(folder)
    os.rename(beside, folder)
    sync_folder(folder.parent)
    return folder

"""Make torch.compile usable from several threads of one process.

Torch's "FX is tracing" flag is one for the process up to 2.13: a thread that calls a compiled function while
another traces is refused with "Detected that you are using FX to symbolically trace...". Behind that lies a
deadlock: autograd's device threads wait for the compiler's lock while its holder needs one of them.
Two parts, each useless alone: the flag made thread-local (`install`), and backward in the worker's own
thread (`worker_init`). On two H200: without, every run of eight loses workers or hangs; with both, none.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import torch

GRAPHS = 64


def install() -> str:
    """Call once, in the main thread, before the first worker starts. Returns what was changed.

    Readers are redirected by their code object, so references taken earlier follow; the writer is wrapped at
    Tracer.trace; access as a module attribute goes through a property on a module subclass.
    """
    import torch._dynamo
    import torch.fx._symbolic_trace

    trace_module: Any = sys.modules["torch.fx._symbolic_trace"]
    compiler: Any = torch.compiler
    if getattr(trace_module, "_dflash_tls", None) is not None:
        return "already"
    done = []
    local = threading.local()
    trace_module._dflash_tls = compiler._dflash_tls = local
    if "_is_fx_tracing_flag" in vars(trace_module):
        _localise_flag(trace_module, local)
        done.append("fx")
    if hasattr(compiler, "_compile_session_context"):
        _localise_session(compiler, local)
        done.append("session")
    set_lru = getattr(torch._C._dynamo.eval_frame, "_set_lru_cache", None)
    if set_lru is not None:
        # threads that walk the shared entry list while another reorders it miss cached entries and recompile
        set_lru(False)
        done.append("lru")
    return "+".join(done) or "native"


def worker_init() -> None:
    """Call first in every worker thread: its backward then runs in itself, not in autograd's device threads."""
    import torch._dynamo

    set_multithreading: Any = torch.autograd.set_multithreading_enabled
    set_multithreading(False)
    # each replica is a graph of one code object: eight of them would be the end of compiling, without a word.
    # From torch 2.12 on the setting is each thread's own.
    torch._dynamo.config.recompile_limit = GRAPHS


def _localise_flag(trace_module: Any, local: threading.local) -> None:
    # the two readers run with torch's module globals: `_dflash_tls` is found there
    def reader() -> bool:
        return getattr(_dflash_tls, "on", False)  # type: ignore[name-defined]  # noqa: F821

    def reader_symbolic() -> bool:
        on = getattr(_dflash_tls, "on", False)  # type: ignore[name-defined]  # noqa: F821
        return on and not torch.compiler.is_compiling()

    trace_module.is_fx_tracing.__code__ = reader.__code__
    if hasattr(trace_module, "is_fx_symbolic_tracing"):
        trace_module.is_fx_symbolic_tracing.__code__ = reader_symbolic.__code__
    original = trace_module.Tracer.trace

    def trace(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = getattr(local, "on", False)
        local.on = True
        try:
            return original(self, *args, **kwargs)
        finally:
            local.on = before

    trace.__wrapped__ = original  # type: ignore[attr-defined]  # what functools.wraps would set
    trace_module.Tracer.trace = trace

    class TraceModule(types.ModuleType):
        @property
        def _is_fx_tracing_flag(self) -> bool:
            return bool(getattr(local, "on", False))

        @_is_fx_tracing_flag.setter
        def _is_fx_tracing_flag(self, value: bool) -> None:
            local.on = value

    trace_module.__class__ = TraceModule


def _localise_session(compiler: Any, local: threading.local) -> None:
    def is_compiling() -> bool:
        if torch.jit.is_scripting():
            return False
        return _is_compiling_flag or getattr(_dflash_tls, "session", 0) > 0  # type: ignore[name-defined]  # noqa: F821

    compiler.is_compiling.__code__ = is_compiling.__code__

    @contextlib.contextmanager
    def session() -> Iterator[None]:
        local.session = getattr(local, "session", 0) + 1
        try:
            yield
        finally:
            local.session -= 1

    compiler._compile_session_context = session

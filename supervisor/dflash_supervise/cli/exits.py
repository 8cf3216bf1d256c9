"""What the exit status of this program means; scripts rely on each of these."""

from __future__ import annotations

DONE = 0  # done, or healthy
TOOL_FAILED = 1
USAGE = 2  # usage or configuration
NOT_RUNNING = 3
UNKNOWN = 4  # the host does not answer, or has not yet
CHECK_FAILED = 5  # a check failed and nothing was started
REFUSED = 6
NO_DAEMON = 7
RUN_FAILED = 100
NOT_FINISHED = 101
NO_SUCH_RUN = 102
STOPPED = 103
HUNG = 104
LOST = 105
TIMEOUT = 124
INTERRUPTED = 130  # Ctrl-C: the run goes on

MEANINGS: tuple[tuple[int, str], ...] = (
    (DONE, "done or healthy"),
    (TOOL_FAILED, "the tool itself failed"),
    (USAGE, "usage or configuration"),
    (NOT_RUNNING, "not running"),
    (UNKNOWN, "unknown: the host does not answer"),
    (CHECK_FAILED, "a check failed, nothing was started"),
    (REFUSED, "refused"),
    (NO_DAEMON, "no daemon"),
    (RUN_FAILED, "the run failed"),
    (NOT_FINISHED, "the run had not finished when we stopped watching"),
    (NO_SUCH_RUN, "no such run"),
    (STOPPED, "the run was stopped by a person"),
    (HUNG, "the run hung and was given up"),
    (LOST, "the run was lost"),
    (TIMEOUT, "timeout"),
    (INTERRUPTED, "interrupted; the run goes on"),
)

"""What the daemon tells the dashboard about itself."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_BODY_BYTES = 64 * 1024
MAX_SSE_CLIENTS = 20


@dataclass(frozen=True)
class WebSettings:
    """How this dashboard may be reached.

    Raises:
        ValueError: the token is shorter than 256 bits of hexadecimal, or no token at all.
    """

    token: str = field(repr=False)
    port: int
    hosts: tuple[str, ...] = ()  # further exact Host values ("gpu-desk.lan:8000") beside the loopback names
    version: str = ""
    poll_s: float = 0.5  # how often a live stream looks whether the store has grown
    max_sse_clients: int = MAX_SSE_CLIENTS
    max_body_bytes: int = MAX_BODY_BYTES

    def __post_init__(self) -> None:
        if len(self.token) < 43:  # 32 random bytes: 43 characters in base64, 64 in hexadecimal
            raise ValueError("the dashboard's token must carry 256 bits (at least 43 characters)")

    @property
    def cookie(self) -> str:
        """Named with the port: two daemons behind one host name do not overwrite each other's session."""
        return f"dflash_{self.port}"

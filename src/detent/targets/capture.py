"""What is kept of a command's output: the beginning, the end, and the number of bytes between them."""

from __future__ import annotations

from collections.abc import Callable

from detent.targets.text import first_bytes, last_bytes, one_line, storable

Hide = Callable[[str], str]


class Capture:
    """Takes any amount of output in constant memory."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._after_head = 0

    def feed(self, data: bytes) -> None:
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._after_head += len(data)
        self._tail += data[-self._tail_limit :] if len(data) > self._tail_limit else data
        # Trimmed rarely, because every trim moves the rest.
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: -self._tail_limit]

    @property
    def omitted(self) -> int:
        return max(0, self._after_head - self._tail_limit)

    def text(self, hide: Hide = str) -> str:
        """`hide` masks secrets in each part, which may begin or end inside of one."""
        tail = bytes(self._tail[-self._tail_limit :])
        if not self.omitted:
            everything = storable(bytes(self._head) + tail)
            return hide(first_bytes(everything, self._head_limit + self._tail_limit))
        head_text = first_bytes(storable(bytes(self._head), complete=False), self._head_limit)
        tail_text = last_bytes(storable(tail), self._tail_limit)
        return f"{hide(head_text)}\n[{self.omitted} bytes left out]\n{hide(tail_text)}"

    def last_line(self, hide: Hide = str) -> str:
        recent = storable(bytes(self._tail[-4096:] or self._head[-4096:]))
        lines = [line for line in recent.splitlines() if line.strip()]
        return one_line(hide(lines[-1])) if lines else ""

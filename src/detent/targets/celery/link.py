"""A thread for one broker: it sends tasks in batches over one connection, and follows those whose result is awaited.

Celery's client blocks, so nothing of it runs on the node's loop. Orders wait in a deque; the thread takes all that are
there, asks the result backend about them in one request, sends those without a state, and gives all replies to the
loop at once. A thread that has had nothing to do for a while closes its connection and ends: servers and firewalls drop
idle connections, and the first message on a dropped one would be lost.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any

from detent.domain.run import Failed, Outcome, Succeeded
from detent.domain.target_url import TargetError
from detent.runtime.clock import monotonic
from detent.runtime.service import Failing
from detent.targets.breaker import Unanswered
from detent.targets.celery.order import CeleryClient, LoginRefusedError, RefusedAddress, Reply, TaskOrder
from detent.targets.celery.states import outcome_of
from detent.targets.exceptions import describe
from detent.targets.guard import AddressRefusedError
from detent.targets.results import as_json
from detent.targets.text import one_line
from detent.telemetry.log import logger

log = logger("celery")

IDLE_SECONDS = 30.0
POLL_SECONDS = 0.1
# While the result backend does not answer.
RETRY_SECONDS = 1.0
BATCH = 200


_Reported = tuple[TaskOrder, Reply | None]
"""None: the broker has the task, and its run ends later."""


class _Stage(Enum):
    CONNECTING = "connecting"
    READING = "reading what the result backend knows"
    SENDING = "sending"


class CeleryLink:
    """`send`, `abandon` and `close` are called on the node's loop; everything else happens in the thread."""

    def __init__(self, open_client: Callable[[], CeleryClient], *, name: str, max_result_bytes: int) -> None:
        self._open_client = open_client
        self._limit = max_result_bytes
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[TaskOrder] = deque()
        self._abandoned: deque[TaskOrder] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._ended = False
        self._client: CeleryClient | None = None
        self._followed: dict[str, TaskOrder] = {}
        self._poll_at = 0.0
        self._polls_fail = False
        self._failing = Failing()
        self._failure: Reply | None = None
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    # --- on the loop ---

    def send(self, order: TaskOrder) -> bool:
        """False: the thread has ended, and another link is needed."""
        with self._changed:
            if self._ended or self._closing:
                return False
            self._waiting.append(order)
            self._changed.notify()
        return True

    def abandon(self, order: TaskOrder, *, revoke: bool) -> None:
        """Nothing waits for its reply any more. `revoke`: its run has ended, so its task ends too, if it was sent and
        is followed."""
        with self._changed:
            order.revoke = revoke
            self._abandoned.append(order)
            self._changed.notify()

    @property
    def ended(self) -> bool:
        return self._ended

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()

    # --- in the thread ---

    def _run(self) -> None:
        try:
            while self._wait():
                self._pass()
        except (Exception, SystemExit) as error:
            log.exception("the thread of a Celery broker failed")
            self._fail_all(Failed(f"The worker's client of Celery failed: {one_line(describe(error))}"))
        finally:
            self._close_client()

    def _fail_all(self, failed: Failed) -> None:
        """No order waits for a thread that has ended. What comes next gets another one."""
        with self._changed:
            self._ended = True
            left = [*self._waiting, *self._followed.values()]
            self._waiting.clear()
            self._followed.clear()
        self._reply([(order, failed) for order in left])

    def _wait(self) -> bool:
        """Until there is something to do; False: the thread ends."""
        with self._changed:
            idle_since = monotonic()
            while not (self._waiting or self._abandoned or self._closing):
                left = self._poll_at - monotonic() if self._followed else idle_since + IDLE_SECONDS - monotonic()
                if left <= 0:
                    if self._followed:
                        return True
                    self._ended = True
                    return False
                self._changed.wait(left)
            if self._closing and not self._waiting and not self._abandoned:
                self._ended = True
                return False
        return True

    def _pass(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH))]
        replies: list[_Reported] = []
        if batch:
            replies += self._send_all([order for order in batch if not order.abandoned])
        self._reply(replies)
        while self._abandoned:
            self._leave(self._abandoned.popleft())
        if self._followed and monotonic() >= self._poll_at:
            self._reply(self._poll())

    def _reply(self, replies: Sequence[_Reported]) -> None:
        if replies:
            with suppress(RuntimeError):  # the loop is closed: the node has ended
                self._loop.call_soon_threadsafe(_deliver, replies)

    def _send_all(self, orders: list[TaskOrder]) -> Sequence[_Reported]:
        """If the connection fails, the rest of the batch fails with it, unsent: each task would wait as long again. If
        a task fails otherwise, the rest waits for the next pass, which connects anew."""
        if self._failure is not None and self._failing.pausing:
            return [(order, self._failure) for order in orders]
        replies: list[_Reported] = []
        left = deque(orders)
        stage = _Stage.CONNECTING
        try:
            client = self._client = self._client or self._open_client()
            client.connect()
            stage = _Stage.READING
            known = self._known(client, orders)
            self._failing.over()
            self._failure = None
            stage = _Stage.SENDING
            while left:
                reply = self._send(client, left[0], known)
                replies.append((left.popleft(), reply))
        except (Exception, SystemExit) as error:  # tasks and their options are the operator's code
            failure = self._failed(error, stage)
            self._close_client()
            if stage is _Stage.SENDING:
                replies.append((left.popleft(), failure))
                if isinstance(failure, Unanswered):
                    failure = failure._replace(sent=False)
                else:
                    self._put_back(left)
            replies += [(order, failure) for order in left]
        return replies

    def _put_back(self, orders: deque[TaskOrder]) -> None:
        with self._changed:
            self._waiting.extendleft(reversed(orders))
        orders.clear()

    def _known(self, client: CeleryClient, orders: list[TaskOrder]) -> Mapping[str, Mapping[str, Any]]:
        """The tasks that were sent before, by a node that was lost since."""
        followed = [order.task_id for order in orders if client.follows(order)]
        return client.states(followed) if followed else {}

    def _send(self, client: CeleryClient, order: TaskOrder, known: Mapping[str, Mapping[str, Any]]) -> Reply | None:
        """None: the run ends when the task ends. Raises if the broker cannot be reached."""
        follow = client.follows(order)
        if order.task_id in known:
            found = self._outcome(order.task_id, known[order.task_id])
            if found is not None:
                return found
        else:
            try:
                client.send(order, follow=follow)
            except (TypeError, ValueError, TargetError) as error:  # of its arguments, not of the connection
                return Failed(f"The task was not sent: {one_line(describe(error))}", retryable=False)
        if not follow:
            return Succeeded(as_json({"task_id": order.task_id, "state": "SENT"}, self._limit))
        self._followed[order.task_id] = order
        self._poll_at = min(self._poll_at, monotonic() + POLL_SECONDS) if self._poll_at else monotonic() + POLL_SECONDS
        return None

    def _poll(self) -> Sequence[_Reported]:
        """A result backend that does not answer ends no run: the timeout of the run does."""
        self._poll_at = monotonic() + POLL_SECONDS
        try:
            client = self._client = self._client or self._open_client()
            states = client.states(list(self._followed))
        except Exception as error:
            if not self._polls_fail:
                log.warning("results of Celery tasks cannot be read", error=one_line(describe(error)))
            self._polls_fail = True
            self._close_client()
            self._poll_at = monotonic() + RETRY_SECONDS
            return []
        self._polls_fail = False
        found = [(task_id, self._outcome(task_id, meta)) for task_id, meta in states.items()]
        return [(self._followed.pop(task_id), outcome) for task_id, outcome in found if outcome is not None]

    def _outcome(self, task_id: str, meta: Mapping[str, Any]) -> Outcome | None:
        """A state that cannot be understood concerns one task only."""
        try:
            return outcome_of(task_id, meta, self._limit)
        except Exception as error:
            return Failed(f"The state of the task cannot be read: {one_line(describe(error))}.", retryable=False)

    def _leave(self, order: TaskOrder) -> None:
        """A later order of the same run may follow the same task by now."""
        if self._followed.get(order.task_id) is not order:
            return
        del self._followed[order.task_id]
        if not order.revoke:
            return
        try:
            client = self._client = self._client or self._open_client()
            client.revoke(order.task_id)
        except Exception as error:
            log.warning("a Celery task was not revoked", task_id=order.task_id, error=one_line(describe(error)))
            self._close_client()

    def _failed(self, error: BaseException, stage: _Stage) -> Reply:
        """Until the pause after it is over, further tasks get the same reply without another try, if there was no
        connection: many runs neither flood a broker that restarts nor lock an account."""
        refused = _refusal(error)
        if refused is not None:  # the rules may change, and asking costs nothing
            return RefusedAddress(refused.fault)
        client, unwelcome = self._client, isinstance(error, LoginRefusedError)
        label = "Celery" if client is None else client.label
        words = str(error) if unwelcome else describe(error)
        failed = Failed(f"The task was not sent to {label}: {one_line(words)}", retryable=not unwelcome)
        lost = stage is not _Stage.READING and client is not None and not unwelcome and client.is_lost(error)
        reply = Unanswered(failed, sent=stage is _Stage.SENDING) if lost else failed
        if stage is _Stage.CONNECTING or unwelcome:
            self._failure = reply
            if self._failing.note(failed.error):
                log.warning("tasks not sent", server=label, error=failed.error)
        return reply

    def _close_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                client.close()


def _deliver(replies: Sequence[_Reported]) -> None:
    for order, reply in replies:
        if reply is None:
            order.taken()
        elif not order.replied.done():
            order.replied.set_result(reply)


def _refusal(error: BaseException | None) -> AddressRefusedError | None:
    """Client libraries wrap what a socket raises."""
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, AddressRefusedError):
            return error
        error, seen = error.__cause__ or error.__context__, seen + 1
    return None

"""Mistakes in programs that use the SDK. Each line with the word WRONG has one: mypy and pyright have to flag
it, and no other line. It is never run."""

from __future__ import annotations

from datetime import timedelta

from detent import BlockingHandle, Detent, Discard, Handle, Retry, Run

app = Detent("shop", tenant="default")
Detent(ur="postgresql://db/shop")  # WRONG: no such keyword
Detent(url=8787)  # WRONG: no text


class RateLimited(Exception):  # noqa: N818 - what a user may write
    pass


@app.task(queue="mail", max_retries=5, retry_on=(TimeoutError,), retry_delays={RateLimited: 60})
async def send_mail(to: str, subject: str = "hi") -> int:
    return len(to + subject)


@app.task
def resize(run: Run, width: int, *, height: int) -> str:
    return f"{run.id} {width}x{height}"


@app.job(cron="0 9 * * MON", timezone="Europe/Berlin", payload={"kind": "daily"})
def report(run: Run, kind: str) -> None:
    run.log.info(kind)


@app.task(max_retrys=5)  # WRONG: a typo in a field
def one() -> None: ...


@app.task(max_retries="5")  # WRONG: text for a number
def two() -> None: ...


@app.job(every="1h", concurrent_policy="SKPI")  # WRONG: a typo in a choice
def three() -> None: ...


@app.job(every="1h", missed_window="run_once")  # WRONG: choices are upper case
def four() -> None: ...


@app.job(every="1h", retry_backoff="quadratic")  # WRONG: no such backoff
def five() -> None: ...


@app.job(crn="0 9 * * MON")  # WRONG: a typo in the schedule
def six() -> None: ...


@app.job(every=["1h"])  # WRONG: a list is no interval
def seven() -> None: ...


@app.task(retry_on=TimeoutError)  # WRONG: one class, not a tuple
def eight() -> None: ...


@app.task(no_retry_on=(404,))  # WRONG: a number is no exception
def nine() -> None: ...


@app.task(retry_delays={RateLimited: "1m"})  # WRONG: text is no delay
def ten() -> None: ...


@app.task(isolate="container")  # WRONG: no such isolation
def eleven() -> None: ...


@app.task(tags="billing")  # text is a sequence of texts for type checkers: refused when it is registered
def twelve() -> None: ...


async def coroutine() -> None:
    await send_mail.enqueue()  # WRONG: an argument is missing
    await send_mail.enqueue(7)  # WRONG: a number for text
    await send_mail.enqueue(to="a", subjekt="b")  # WRONG: a typo in a parameter
    await send_mail.enqueue("a", "b", "c")  # WRONG: one argument too many
    await resize.enqueue(1, 2)  # WRONG: height is a keyword
    await resize.enqueue(run=None, width=1, height=2)  # WRONG: the run is not an argument
    handle: Handle[str] = await send_mail.enqueue("a")  # WRONG: its result is a number
    text: str = await (await send_mail.enqueue("a")).result()  # WRONG: its result is a number
    await handle.result(timeout="30")  # WRONG: text for seconds
    blocking: BlockingHandle[int] = await send_mail.enqueue("a")  # WRONG: a handle to await
    await send_mail.options(dealy=60).enqueue("a")  # WRONG: a typo in an option
    await send_mail.options(delay="1m").enqueue("a")  # WRONG: text is no delay
    await send_mail.options(priority="high").enqueue("a")  # WRONG: text is no priority
    await send_mail.options(delay=60).enqueue(to=1)  # WRONG: options keep the types of the arguments
    await send_mail.enqueue_many([send_mail.call(to=1)])  # WRONG: a number for text
    await send_mail.enqueue_many([resize.call(1, height=2)])  # WRONG: a call of another task
    await send_mail.enqueue_many([{"to": "a"}])  # WRONG: no call
    await send_mail.schedule("weekly", send_mail.call("a"), crn="0 9 * * MON")  # WRONG: a typo in the schedule
    await send_mail.schedule("weekly", resize.call(1, height=2), cron="0 9 * * MON")  # WRONG: another task
    await send_mail.schedule("weekly", send_mail.call("a"), every="1h", max_retrys=5)  # WRONG: a typo in a field
    number: int = send_mail("a")  # WRONG: a coroutine, not its result
    await resize(1, height=2)  # WRONG: called directly it needs its run
    assert handle and text and blocking and number


async def effects(run: Run) -> None:
    await run.step("mail", send_mail, 7)  # WRONG: a number for text
    await run.step(send_mail, "a")  # WRONG: the name is missing
    name: str = await run.step("mail", send_mail, "a")  # WRONG: its result is a number
    run.once("invoice-42", scope="cluster")  # WRONG: no such scope
    run.once("invoice-42", keep_for="1d")  # WRONG: text is no time
    async with run.once("invoice-42") as effect:
        effect.pipeline.incr("orders")  # WRONG: that is what Redis has
    await run.once("mail").do(send_mail, to=7)  # WRONG: a number for text
    assert name


def plain(run: Run) -> None:
    send_mail.enqueue_sync(to=1)  # WRONG: a number for text
    words: str = send_mail.delay("a").result(timeout=5)  # WRONG: its result is a number
    send_mail.apply_async(("a",), countdwn=60)  # WRONG: a typo in an option
    send_mail.apply_async("a", eta=60)  # WRONG: a number is no time
    report(run)  # WRONG: the kind is missing
    report.enqueue_sync(kind=7)  # WRONG: a number for text
    run.log.info(run.paylod)  # WRONG: a typo in an attribute
    assert words
    if run.attempt > 1:
        raise Retry(after="30")  # WRONG: text is no delay
    if run.attempt > 2:
        raise Retry(seconds=30)  # WRONG: no such keyword
    if run.attempt > 3:
        raise Retry(after=timedelta(minutes=1))
    raise Discard(why="gone")  # WRONG: it has no keywords

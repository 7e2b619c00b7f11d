import asyncio

from procrastinate_setup import app, prepare

ended = []


@app.task
async def wait() -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        ended.append("cancelled")
        raise


async def main() -> None:
    async with app.open_async():
        await prepare()
        job = await wait.defer_async()
        worker = asyncio.create_task(app.run_worker_async(install_signal_handlers=False))
        while (await app.job_manager.get_job_status_async(job)).value != "doing":
            await asyncio.sleep(0.1)
        await app.job_manager.cancel_job_by_id_async(job, abort=True)
        while (status := await app.job_manager.get_job_status_async(job)).value == "doing":
            await asyncio.sleep(0.1)
        worker.cancel()
        await asyncio.wait([worker])
    print(ended, status.value)
    print("yes: cancel_job_by_id_async(abort=True) cancels the coroutine")


asyncio.run(main())

"""A job store keeps the name of a function, so the function needs a module that is not the program."""


async def noop() -> None:
    pass

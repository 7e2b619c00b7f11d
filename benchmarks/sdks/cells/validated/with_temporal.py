import asyncio

from temporalio.converter import DataConverter

converter = DataConverter.default


async def main() -> None:
    sent = await converter.encode(
        [{"copies": "two"}]
    )  # what the client sends: it looks at no annotation of the workflow
    print(sent[0].data)


asyncio.run(main())
print("no: (read) the client encodes any value; the worker fails or converts when it decodes by the annotations")

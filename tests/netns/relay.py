"""Takes connections at an address of its network namespace and hands them to a unix socket: argv = address, socket."""

import asyncio
import sys


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # one side has gone; the other is told by the end
    finally:
        writer.close()


async def main(address: str, path: str) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            behind = await asyncio.open_unix_connection(path)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, behind[1]), pump(behind[0], writer))

    server = await asyncio.start_server(connected, address, 5432)
    await server.serve_forever()


asyncio.run(main(sys.argv[1], sys.argv[2]))

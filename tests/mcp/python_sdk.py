"""The protocol's Python library, in either major version, as a client of `portcullis serve`, over standard streams and
over HTTP. The second version first asks for a revision without sessions (`server/discover`), and begins a session when
the server has no such revision.

Lists the tools, calls every one of them with real arguments, and checks the results. PORTCULLIS_BIN is the path of the
program. Ends with `N passed, 0 failed`, or with the first assertion that fails.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client

try:
    from mcp import Client, MCPError as McpError
    from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
except ImportError:
    from mcp import McpError
    from mcp.client.streamable_http import streamablehttp_client

    Client = None

PROGRAM = os.environ["PORTCULLIS_BIN"]
# Generous: the machine may be busy, and a first start compiles.
DEADLINE_SECONDS = 240
LONG_LINES = 60_000
# The newest revision with sessions.
REVISION = "2025-11-25"


class Person:
    """Answers questions as told, and keeps them."""

    def __init__(self, answer):
        self.answer = answer
        self.questions = []

    async def __call__(self, _context, params):
        self.questions.append(params.message)
        return self.answer


APPROVING = types.ElicitResult(action="accept", content={"answer": "approve"})
DENYING = types.ElicitResult(action="accept", content={"answer": "deny", "reason": "not today"})
DECLINING = types.ElicitResult(action="decline")


class World:
    """A new workspace, and a state folder that all share, so that the core tools are compiled once."""

    def __init__(self, root, name):
        self.workspace = Path(root) / name
        self.state = Path(root) / "state"
        for mount in ("shared", "tmp", "vault"):
            (self.workspace / mount).mkdir(parents=True)
        self.shared = self.workspace / "shared"
        self.policy = Path(root) / "policy.toml"
        (self.shared / "notes.md").write_text("one\ntwo\nthree\n")
        (self.shared / "old.md").write_text("old\n")
        (self.shared / "long.txt").write_text("".join(f"line {n}\n" for n in range(LONG_LINES)))
        (self.workspace / "vault" / "key.pem").write_text("the key\n")

    def arguments(self, *options):
        return ["serve", "--workspace", str(self.workspace), "--state", str(self.state), *options]


@asynccontextmanager
async def over_stdio(world, *options, person=None):
    parameters = StdioServerParameters(command=PROGRAM, args=world.arguments(*options), env=dict(os.environ))
    transport = stdio_client(parameters, errlog=subprocess.DEVNULL)
    async with begun(transport, person) as session:
        yield session


@asynccontextmanager
async def over_http(world, *options, person=None):
    server = await asyncio.create_subprocess_exec(
        PROGRAM,
        *world.arguments("--http", "127.0.0.1:0", *options),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        url = await told(server, b"serving at ")
        token = Path(await told(server, b"the token is in ")).read_text().strip()
        drain = asyncio.create_task(server.stderr.read())
        headers = {"Authorization": f"Bearer {token}"}
        if Client:
            async with create_mcp_http_client(headers=headers) as http:
                async with begun(streamable_http_client(url, http_client=http), person) as session:
                    yield session
        else:
            async with begun(streamablehttp_client(url, headers=headers), person) as session:
                yield session
        server.terminate()
        assert await server.wait() == 0, "the server ends well"
        await drain
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()


@asynccontextmanager
async def begun(transport, person):
    """An initialized session, in the newest revision that both sides have."""
    if Client:
        async with Client(transport, elicitation_callback=person) as client:
            assert client.protocol_version == REVISION, client.protocol_version
            yield client
        return
    async with transport as (read, write, *_):
        async with ClientSession(read, write, elicitation_callback=person) as session:
            answer = await session.initialize()
            assert answer.protocolVersion == REVISION, answer.protocolVersion
            yield session


def of(value, name):
    """A field, whose name differs in the second version."""
    snake = re.sub("[A-Z]", lambda found: "_" + found[0].lower(), name)
    return getattr(value, snake) if hasattr(value, snake) else getattr(value, name)


async def told(server, words):
    async for line in server.stderr:
        if line.startswith(words):
            return line.removeprefix(words).decode().strip()
    raise AssertionError(f"the server did not say {words!r}")


def text(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


async def succeeds(session, name, arguments, expected, **options):
    result = await session.call_tool(name, arguments, **options)
    assert not of(result, "isError"), f"{name}: {text(result)}"
    assert re.search(expected, text(result)), f"{name}: {text(result)[:2000]}"
    return result


async def fails(session, name, arguments, expected):
    result = await session.call_tool(name, arguments)
    assert of(result, "isError"), f"{name}: {text(result)}"
    assert text(result).startswith("Tool execution failed: "), text(result)
    assert re.search(expected, text(result)), f"{name}: {text(result)}"


async def tools_and_errors(session, world):
    """Every tool that needs no approval, and refused calls."""
    await session.send_ping()
    listed = {tool.name: tool for tool in (await session.list_tools()).tools}
    reads, writes = (of(listed[name].annotations, "readOnlyHint") for name in ("file_read", "file_write"))
    assert reads and not writes, (reads, writes)
    calls = [
        ("add", {"a": 2, "b": 3}, r"5"),
        ("subtract", {"a": 2, "b": 3}, r"-1"),
        ("multiply", {"a": 4, "b": 2.5}, r"10"),
        ("divide", {"a": 1, "b": 4}, r"0\.25"),
        ("get_current_time", {"timezone": "Europe/Berlin"}, r"20\d\d-"),
        ("file_list", {"path": "/shared"}, r"notes\.md"),
        ("file_read", {"path": "/shared/notes.md", "offset": 2, "limit": 1}, r"two"),
        ("file_search", {"query": "thr.e", "regex": True}, r"notes\.md"),
        ("file_write", {"path": "/shared/new.md", "content": "fresh añ€😀\n"}, r""),
        ("file_edit", {"path": "/shared/notes.md", "old_text": "two", "new_text": "zwei"}, r""),
        ("file_delete", {"path": "/shared/old.md"}, r""),
        ("vault_copyto", {"source_path": "/vault/key.pem", "destination_path": "/shared/key.pem"}, r""),
    ]
    for name, arguments, expected in calls:
        await succeeds(session, name, arguments, expected)
    assert (world.shared / "new.md").read_text() == "fresh añ€😀\n"
    assert (world.shared / "notes.md").read_text() == "one\nzwei\nthree\n"
    assert not (world.shared / "old.md").exists()
    assert (world.shared / "key.pem").read_text() == "the key\n"

    echoed = await succeeds(session, "echo", {"message": "añ€😀"}, r"añ€😀")
    data = of(echoed, "structuredContent")
    assert data == {"echoed": "añ€😀", "length": 4}, data

    # The rest of a truncated output can be read, by the id in its mark.
    cut = await succeeds(session, "file_read", {"path": "/shared/long.txt"}, r"output_read")
    call = re.search(r'`call_id` "(\w+)"', text(cut))
    assert call, text(cut)[-2000:]
    await succeeds(session, "output_read", {"call_id": call[1], "offset": 100, "limit": 1000}, r"line \d+")

    await fails(session, "failing_tool", {}, r"\w")
    await fails(session, "file_write", {"path": "/vault/key.pem", "content": "mine"}, r"vault")
    assert (world.workspace / "vault" / "key.pem").read_text() == "the key\n"
    await fails(session, "file_read", {"path": "/shared/../../etc/passwd"}, r"\w")
    await fails(session, "file_read", {}, r"missing required field 'path'")
    await fails(session, "divide", {"a": 1, "b": 0}, r"zero")
    await fails(session, "web_fetch", {"url": "https://127.0.0.1/"}, r"public address")
    try:
        await session.call_tool("no_such_tool", {})
        raise AssertionError("a tool that is not there was called")
    except McpError as error:
        assert error.error.code == types.INVALID_PARAMS, error.error
    called = {name for name, _, _ in calls} | {"echo", "output_read", "failing_tool", "shell_exec", "web_fetch"}
    # Examples are called by name, and not listed.
    examples = {"add", "subtract", "multiply", "divide", "echo", "failing_tool"}
    assert called - examples == set(listed), f"not called: {(called - examples) ^ set(listed)}"


async def command(session, person=None):
    """A command, whose output comes as progress while it runs."""
    heard = []

    async def on_progress(progress, _total, message):
        heard.append((progress, message))

    line = "echo out; echo err >&2; (exit 3)"
    result = await succeeds(session, "shell_exec", {"command": line}, r"exit code: 3", progress_callback=on_progress)
    assert "out" in text(result) and "err" in text(result), text(result)
    assert heard and "out" in "".join(message or "" for _, message in heard), heard
    assert [progress for progress, _ in heard] == sorted({progress for progress, _ in heard}), heard
    if person:
        assert len(person.questions) == 1 and line in person.questions[0], person.questions


async def searching(transport, world):
    """`web_search` is there with a provider in the policy, here a server of our own."""
    found = {"title": "A gate", "url": "https://a.example/", "content": "of the town"}
    answer = json.dumps({"query": "q", "results": [found]}).encode()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(answer)}\r\n\r\n"
        writer.write(head.encode() + answer)
        await writer.drain()
        writer.close()

    provider = await asyncio.start_server(serve, "127.0.0.1", 0)
    place = "127.0.0.1:%d" % provider.sockets[0].getsockname()[1]
    policy = subprocess.run([PROGRAM, "policy", "default"], check=True, capture_output=True, text=True).stdout
    policy = policy.replace('hosts = ["https://*"]', f'hosts = ["http://{place}"]')
    policy = policy.replace("allow_private = []", f'allow_private = ["{place}"]')
    world.policy.write_text(f'{policy}\n[search]\nprovider = "searxng"\nurl = "http://{place}/search"\n')
    async with transport(world, "--approve", "--policy", str(world.policy)) as session:
        listed = {tool.name for tool in (await session.list_tools()).tools}
        assert "web_search" in listed and "search_web" not in listed, listed
        await succeeds(session, "web_search", {"query": "gates"}, r"1\. \[A gate\]\(https://a\.example/\)")
        await fails(session, "web_search", {"query": "gates", "site": "https://a.example"}, r"a host name")
    provider.close()


async def approved_by_the_operator(transport, world):
    async with transport(world, "--approve") as session:
        await tools_and_errors(session, world)
        await command(session)


async def approved_by_the_person(transport, world):
    person = Person(APPROVING)
    async with transport(world, person=person) as session:
        await command(session, person)


async def refused(transport, world):
    person = Person(DENYING)
    async with transport(world, person=person) as session:
        touch = {"command": "touch /shared/touched"}
        await fails(session, "shell_exec", touch, r"not today")
        person.answer = DECLINING
        await fails(session, "shell_exec", touch, r"declined")
        assert len(person.questions) == 2, person.questions
    async with transport(world) as session:
        await fails(session, "shell_exec", touch, r"--approve")
    assert not (world.shared / "touched").exists()


async def main():
    passed = 0
    with tempfile.TemporaryDirectory() as root:
        for transport in (over_stdio, over_http):
            for case in (approved_by_the_operator, approved_by_the_person, refused, searching):
                name = f"{transport.__name__} {case.__name__}"
                await asyncio.wait_for(case(transport, World(root, name)), DEADLINE_SECONDS)
                print(f"ok      {name}", flush=True)
                passed += 1
    print(f"{passed} passed, 0 failed")


sys.exit(asyncio.run(main()))

"""Runs external tools of a Portcullis gateway: listens for the calls of an agent, and submits their results.

    from portcullis_gateway import Gateway

    gateway = Gateway("http://127.0.0.1:8810", token)        # a token of the agent

    @gateway.tool("fetchExternalData")
    def fetch(args):
        return {"source": "pm-api", "results": find(args["query"])}

    gateway.run("agt_…")                                     # until it is interrupted

Needs Python 3.9 and nothing else. A call that was made while the program did not run is found at its start. A function
that raises an exception gives the result {"error": "…"}.
"""

import json
import time
import urllib.error
import urllib.parse
import urllib.request

READ_TIMEOUT = 60.0  # seconds without a byte; the gateway sends a comment every 15 s
LONGEST_PAUSE = 30.0  # seconds between two attempts to connect


class Refused(Exception):
    """A refusal of the gateway: `status` is the HTTP status, `code` the gateway's code."""

    def __init__(self, status, code, message):
        super().__init__(f"{status} {code}: {message}")
        self.status, self.code = status, code


class Gateway:
    """A gateway, as the holder of a token sees it."""

    def __init__(self, url, token):
        self._url, self._token, self._tools = url.rstrip("/"), token, {}

    def tool(self, name):
        """Registers a function for the calls of this tool. It takes the arguments and returns the result, as JSON."""

        def register(function):
            self._tools[name] = function
            return function

        return register

    def request(self, method, path, body=None, headers=(), timeout=30.0):
        """Sends a request, and returns the open response."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, method=method)
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Content-Type", "application/json")
        for name, value in headers:
            request.add_header(name, value)
        try:
            return urllib.request.urlopen(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            try:
                refusal = json.loads(text)["error"]
            except (ValueError, KeyError, TypeError):
                refusal = {"code": "unknown", "message": text[:200]}
            raise Refused(error.code, refusal["code"], refusal["message"]) from None

    def submit(self, run, call, result):
        """Submits the result of a call. A result that another program has submitted first stays."""
        path = f"/api/runs/{urllib.parse.quote(run, safe='')}/tool-results"
        try:
            with self.request("POST", path, {"callId": call, "result": result}) as response:
                return json.load(response)
        except Refused as refusal:
            if refusal.status in (409, 410):
                return None
            raise

    def open_calls(self, agent):
        """The calls of an agent that wait for a result."""
        for status in ("waiting", "pending"):
            after = None
            while True:
                query = {"agentId": agent, "status": status, "limit": 1000, **({"after": after} if after else {})}
                with self.request("GET", "/api/calls?" + urllib.parse.urlencode(query)) as response:
                    page = json.load(response)
                yield from page["items"]
                after = page["next"]
                if after is None:
                    break

    def listen(self, agent, last=None):
        """Connects to the events of an agent: from now on, or after the event with this id."""
        headers = [("Last-Event-ID", last)] if last is not None else []
        path = f"/api/agents/{urllib.parse.quote(agent, safe='')}/events"
        return self.request("GET", path, headers=headers, timeout=READ_TIMEOUT)

    @staticmethod
    def events(response):
        """The events of a connection as (id, kind, data). An event that is not stored has no id."""
        fields = {}
        for line in response:
            name, _, value = line.decode().rstrip("\r\n").partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
            elif fields:
                if "event" in fields:
                    yield fields.get("id"), fields["event"], json.loads(fields["data"])
                fields = {}

    def answer(self, run, call, name, args):
        """Runs the function of a call, if there is one, and submits its result."""
        function = self._tools.get(name)
        if function is None:
            return
        try:
            result = function(args)
        except Exception as error:  # the agent reads what went wrong
            result = {"error": f"{type(error).__name__}: {error}"}
        self.submit(run, call, result)

    def run(self, agent):
        """Answers the calls of an agent, one after the other, for ever. A lost connection is opened again."""
        last, pause = None, 1.0
        while True:
            try:
                # The connection comes first, so that no call falls between the list and the events.
                with self.listen(agent, last) as response:
                    for item in self.open_calls(agent):
                        self.answer(item["runId"], item["callId"], item["toolName"], item["args"])
                    for identity, kind, data in self.events(response):
                        pause, last = 1.0, identity or last
                        if kind == "call.pending":
                            self.answer(data["runId"], data["callId"], data["name"], data["args"])
                        elif kind == "reset":
                            last = None
                            break
            except Refused as refusal:
                if refusal.status not in (429, 500, 503):
                    raise
            except OSError:
                pass
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

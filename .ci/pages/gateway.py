#!/usr/bin/env python3
"""A person at the gateway's page, in headless Chromium: `portcullis gateway --demo` asks before it books.

    gateway.py PORTCULLIS [--pictures DIR] [--axe FILE]

Signs in by the link, writes, confirms by keyboard at 1280 px and rejects by touch at 390 px, follows the agent's answer as
it comes, and looks at the run with its rows. A complaint of the console, a request to another host, or a page that scrolls
sideways is a fault. With axe-core's script, its findings are faults too. --pictures renews the pictures of docs/gateway.md.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import time

from check import Browser

PATIENCE = 60


class Page:
    """The page in a browser of one width."""

    def __init__(self, width, theme):
        self.browser = Browser()
        self.width = width
        self.browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=844,
                         deviceScaleFactor=2 if width < 500 else 1, mobile=width < 500)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.browser.ask("Emulation.setEmulatedMedia", media="screen", features=features)

    def run(self, script):
        """The value of a script, which sees the helpers below."""
        helpers = """
            const all = (selector) => [...document.querySelectorAll(selector)];
            const seen = (element) => element.checkVisibility();
            const named = (name, selector = 'button, a, input, textarea') => all(selector).find(
                (element) => seen(element) && (element.ariaLabel ?? element.innerText ?? '').trim() === name
                    || element.labels?.[0]?.innerText.trim() === name);
            const text = () => document.body?.innerText ?? '';
        """
        answer = self.browser.ask("Runtime.evaluate", expression=f"(() => {{ {helpers} return ({script}); }})()",
                                  returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:600])
        return answer["result"].get("value")

    def wait(self, what, script):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.run(script):
                return
            time.sleep(0.1)
        sys.exit(f"{self.width} px: {what} did not happen; the page says:\n{self.run('text()')}")

    def key(self, key, text=None):
        code = {"Enter": 13, "Tab": 9}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
            if text and kind == "keyDown":
                event["text"] = text
            self.browser.ask("Input.dispatchKeyEvent", **event)

    def faults(self, url):
        found = []
        for event in self.browser.events:
            params = event.get("params", {})
            match event.get("method"):
                case "Log.entryAdded":
                    found.append(f"console: {params['entry']['text'][:200]}")
                case "Runtime.exceptionThrown":
                    found.append(f"console: {json.dumps(params)[:300]}")
                case "Network.requestWillBeSent" if not params["request"]["url"].startswith(url):
                    found.append(f"a request: {params['request']['url'][:200]}")
        if self.run("document.documentElement.scrollWidth > innerWidth"):
            found.append("the page scrolls sideways")
        return [f"{self.width} px: {fault}" for fault in found]

    def axe(self, script):
        """The findings of axe-core."""
        self.browser.ask("Runtime.evaluate", expression=script)
        answer = self.browser.ask("Runtime.evaluate", returnByValue=True, awaitPromise=True, expression="""
            axe.run(document).then((found) => found.violations.map(
                ({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target.join(' ')).join(', ')}`))""")
        return [f"{self.width} px: axe: {finding}" for finding in answer["result"]["value"]]

    def picture(self, file):
        self.browser.screenshot(file, self.width, 844)


def visit(page, url, token, words, answer, options):
    """Writes these words, and answers the agent's question."""
    page.browser.ask("Page.navigate", url=f"{url}#token={token}")
    page.wait("the list of spaces", "text().includes('Travel')")
    page.wait("a clean address", "!location.href.includes('token')")
    page.run("all('a').find((link) => seen(link) && link.innerText.includes('Travel')).click()")
    page.wait("the field for a message", "Boolean(named('Message'))")
    before = page.run("all('[data-testid=message]').length")
    page.run("named('Message').focus()")
    page.browser.ask("Input.insertText", text=words)
    page.key("Enter", "\r")
    page.wait("the question", f"all('[data-status=requires_action]').some(seen) && all('[data-testid=message]').length > {before}")
    faults = page.axe(options.axe.read_text()) if options.axe else []
    if options.pictures and page.width < 500:
        page.picture(options.pictures / "gateway-phone.png")
    page.run(f"named('{answer}').focus()")
    page.key("Enter", "\r")
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("portcullis")
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("--axe", type=pathlib.Path)
    options = parser.parse_args()
    gateway = subprocess.Popen([options.portcullis, "gateway", "--demo", "--http", "127.0.0.1:0"],
                               stderr=subprocess.PIPE, text=True)
    faults = []
    try:
        line = next(line for line in gateway.stderr if line.startswith("open "))
        url, token = re.fullmatch(r"open (http://\S+/)#token=(\S+)\n", line).groups()
        for width, theme, words, answer, outcome in (
            (1280, "light", "Book a hotel in Tokyo", "Confirm", "Booked: three nights"),
            (390, "dark", "And one in Kyoto", "Reject", "I have booked nothing."),
        ):
            page = Page(width, theme)
            try:
                faults += visit(page, url, token, words, answer, options)
                page.wait("the agent's answer", f"text().includes({json.dumps(outcome)})")
                if answer == "Confirm":
                    page.wait("the chart", "all('[data-testid=chart]').some(seen)")
                if options.axe:
                    faults += page.axe(options.axe.read_text())
                if options.pictures and width > 500:
                    page.picture(options.pictures / "gateway-wide.png")
                page.run("all('[data-testid=tool] a').find((link) => link.hash.includes('runs')).click()")
                page.wait("the rows of the run", "all('[data-testid=rows] tbody tr').some((row) => row.innerText.includes('confirmAction'))")
                faults += page.faults(url)
                print(f"{width} px, {theme}: asked, answered by {answer!r}, and the agent went on")
            finally:
                page.browser.close()
    finally:
        gateway.terminate()
        gateway.wait(timeout=PATIENCE)
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()

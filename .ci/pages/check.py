#!/usr/bin/env python3
"""Opens pages in headless Chromium, and measures them with measure.js, at every width and in every theme.

    check.py [--screenshots DIR] PAGE...
    check.py --pictures DIR REPORT        makes the pictures of the documentation

Chromium is asked by its DevTools protocol over two pipes, with Python's standard library only. The protocol can run a
script in a page whose content security policy forbids scripts. Before the pages, faulty.html is measured: each of its
faults must be found.
"""

import argparse
import base64
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WIDTHS = (1280, 768, 390)
# A4 on its side, less its margins, at 96 px an inch.
PAPER_WIDTH = 1032
TIMEOUT_SECONDS = 60

# The faults that must be found in faulty.html. The one of the console is a violation of its content security policy.
EXPECTED_FAULTS = (
    "the page scrolls sideways", "1 scripts", "no language", "no title", "not one h1", "an attribute that acts",
    "a link that leads nowhere", "an id is used twice", "a table without a caption", "a th without a scope",
    "another number of cells", "text leaves its box", "a table leaves its box", "contrast 2.8", "contrast 3.9",
    "small text", "console: ",
)


class Browser:
    """A Chromium with one tab."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory()
        to_browser, self.write_end = os.pipe()
        read_end, from_browser = os.pipe()
        command = [
            "chromium", "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}",
            "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-sync",
            "--disable-background-networking", "--disable-component-update", "--force-color-profile=srgb",
        ]
        if os.geteuid() == 0:
            command.append("--no-sandbox")  # Chromium's own sandbox does not start as root.
        # The browser reads descriptor 3 and writes descriptor 4.
        shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.reader = os.fdopen(read_end, "rb")
        self.rest = b""
        self.ids = itertools.count(1)
        self.events = []
        self.session = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **params):
        message = {"id": next(self.ids), "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next_message()
            if answer.get("id") == message["id"]:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def next_message(self):
        while b"\0" not in self.rest:
            piece = os.read(self.reader.fileno(), 1 << 20)
            if not piece:
                raise RuntimeError("the browser ended")
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, page, width, theme, medium):
        """Opens a page, and returns the browser's complaints about it."""
        is_phone = width < 500
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900,
                 deviceScaleFactor=2 if is_phone else 1, mobile=is_phone)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.ask("Emulation.setEmulatedMedia", media=medium, features=features)
        self.events.clear()
        url = page.resolve().as_uri()
        self.ask("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.next_message())
        self.ask("Runtime.evaluate", expression="document.fonts.ready.then(() => 1)", awaitPromise=True)
        complaints = []
        for event in self.events:
            params = event.get("params", {})
            match event.get("method"):
                case "Log.entryAdded":
                    complaints.append(f"console: {params['entry']['text'][:160]}")
                case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                    complaints.append(f"console: {json.dumps(params)[:160]}")
                case "Network.requestWillBeSent" if params["request"]["url"] != url:
                    complaints.append(f"a request: {params['request']['url'][:160]}")
        return complaints

    def measure(self):
        script = (HERE / "measure.js").read_text()
        answer = self.ask("Runtime.evaluate", expression=script)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:600])
        return json.loads(answer["result"]["value"])

    def screenshot(self, file, width, height, scale=1, y=0):
        clip = {"x": 0, "y": y, "width": width, "height": height, "scale": scale}
        answer = self.ask("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(answer["data"]))

    def print(self, file):
        answer = self.ask("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        pdf = base64.b64decode(answer["data"])
        file.write_bytes(pdf)
        return pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ")

    def close(self):
        self.session = None
        try:
            self.ask("Browser.close")
        except (RuntimeError, OSError):
            pass
        self.process.wait(timeout=TIMEOUT_SECONDS)
        self.profile.cleanup()


def check(browser, pages, folder):
    faults = 0
    for page in pages:
        for width, theme, medium in [
            *((width, theme, "screen") for width in WIDTHS for theme in ("light", "dark")),
            (PAPER_WIDTH, "light", "print"), (PAPER_WIDTH, "dark", "print"),
        ]:
            complaints = browser.open(page, width, theme, medium)
            found = browser.measure()
            complaints += found["faults"]
            name = f"{page.stem}-{medium if medium == 'print' else width}-{theme}"
            if folder:
                browser.screenshot(folder / f"{name}.png", width, min(found["height"], 8000))
            ratio, text = found["least"]
            print(f"{name}: {found['texts']} texts, {found['scrolled']} boxes scroll, least contrast {ratio:.2f} "
                  f"({text!r}), {found['height']} px high" + "".join(f"\n  FAULT {fault}" for fault in complaints))
            # The themes must differ on a screen, and must not on paper.
            is_dark = sum(map(int, found["back"].strip("rgb()").split(","))) < 384
            if is_dark != (theme == "dark" and medium == "screen"):
                complaints.append("theme")
                print(f"  FAULT the background is {found['back']}")
            faults += len(complaints)
        if folder:
            print(f"{page.stem}: {browser.print(folder / f'{page.stem}.pdf')} sheets of paper")
    return faults


def check_the_check(browser):
    found = browser.open(HERE / "faulty.html", 1280, "light", "screen") + browser.measure()["faults"]
    missed = [fault for fault in EXPECTED_FAULTS if not any(fault in text for text in found)]
    if missed:
        sys.exit(f"faults of faulty.html that were not found: {missed}\nfound: {found}")


def pictures(browser, report, folder):
    # The width, theme, size and first element of each picture.
    for name, width, theme, height, scale, top in (
        ("wide", 1280, "light", 1300, 0.7, "body"),
        ("phone", 390, "dark", 800, 0.75, ".totals"),
    ):
        browser.open(report, width, theme, "screen")
        script = f"document.querySelector({top!r}).getBoundingClientRect().top"
        y = max(0, browser.ask("Runtime.evaluate", expression=script)["result"]["value"] - 20)
        browser.screenshot(folder / f"report-{name}.png", width, height, scale, y)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--screenshots", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    if options.screenshots:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    browser = Browser()
    try:
        check_the_check(browser)
        if options.pictures:
            pictures(browser, options.pages[0], options.pictures)
            return
        faults = check(browser, options.pages, options.screenshots)
    finally:
        browser.close()
    if options.screenshots:
        print(f"screenshots: {options.screenshots}")
    if faults:
        sys.exit(f"{faults} faults")


if __name__ == "__main__":
    main()

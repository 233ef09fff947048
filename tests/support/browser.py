# SPDX-License-Identifier: BSD-3-Clause
"""A headless Chromium that shows one page, driven over its pipe for debuggers."""

import base64
import json
import os
import subprocess

LIMIT = 90  # seconds of every wait


class Browser:
    """`chromium` is the program; `folder` is for its profile.  close() ends it."""

    def __init__(self, chromium, folder, width=1600, height=1000, options=()):
        ours, theirs_out = os.pipe()
        theirs_in, self._out = os.pipe()
        self._in = os.fdopen(ours, "rb", buffering=0)

        def as_3_and_4():  # where Chromium reads commands and writes answers
            given_in, given_out = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(given_in, 3)
            os.dup2(given_out, 4)

        self._process = subprocess.Popen(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--remote-debugging-pipe", f"--user-data-dir={folder}", f"--window-size={width},{height}", *options,
             "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=as_3_and_4)
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest, self._number, self._session = b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method, **parameters):
        """Carries out a command of the DevTools protocol and returns its result."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._out, json.dumps(command).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                more = self._in.read(65536)
                if not more:
                    raise RuntimeError("chromium has ended")
                self._rest += more
            text, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(text)
            if answer.get("id") != self._number:
                continue  # an event
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            return answer["result"]

    def open(self, url):
        self.call("Page.navigate", url=url)

    def value(self, expression):
        """What this JavaScript gives in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as out:
            out.write(base64.b64decode(data))

    def close(self):
        self._process.terminate()
        try:
            self._process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._in.close()
        os.close(self._out)

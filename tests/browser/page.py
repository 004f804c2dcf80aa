"""A page in a browser as tests use it: open, press, point, type, read, and check that nothing was fetched."""

import json
import time
from base64 import b64decode

import numpy as np
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

READY = "return document.documentElement.dataset.ready === '1'"


class Page:
    """A web page in a browser."""

    def __init__(self, driver, folder):
        self.driver, self.folder = driver, folder

    def set_screen(self, wide=1280, high=860, dark=False, touch=False):
        self.command("Emulation.setDeviceMetricsOverride", width=wide, height=high, deviceScaleFactor=1, mobile=touch)
        self.command("Emulation.setTouchEmulationEnabled", enabled=touch)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def command(self, name, **parameters):
        return self.driver.execute_cdp_cmd(name, parameters)

    def open(self, path):
        self.driver.get_log("browser"), self.driver.get_log("performance")  # discard the logs of earlier pages
        self.driver.get(path.as_uri())
        self.until(READY, 60)
        self.wait_drawn()
        return self

    def until(self, script, seconds=20):
        end = time.monotonic() + seconds
        while not self.js(script):
            assert time.monotonic() < end, f"never: {script}"
            time.sleep(0.02)

    def wait_drawn(self):
        """Wait until everything has been drawn."""
        wait = "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(arguments[0], 0)))"
        self.driver.execute_async_script(wait)
        self.until("return !exactline.idle || exactline.idle()")

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def find(self, name):
        return self.driver.find_element(By.ID, name)

    def text(self, name):
        return self.js("return document.getElementById(arguments[0]).textContent", name)

    def press(self, *names):
        for name in names:
            self.js("document.getElementById(arguments[0]).click()", name)
        self.wait_drawn()

    def keys(self, *keys, on=None, shift=False):
        if on is not None:
            self.js("document.getElementById(arguments[0]).focus()", on)
        chain = ActionChains(self.driver)
        chain = chain.key_down(Keys.SHIFT) if shift else chain
        for key in keys:
            chain = chain.send_keys(key)
        (chain.key_up(Keys.SHIFT) if shift else chain).perform()
        self.wait_drawn()

    def type_alpha(self, text):
        """Type into the field of alpha."""
        script = """const field = document.getElementById("alpha");
        field.focus(); field.value = arguments[0]; field.dispatchEvent(new InputEvent("input", { bubbles: true }))"""
        self.js(script, text)

    def state(self):
        return self.js("return exactline.state()")

    def info(self, inside="info"):
        """The rows of a list on the page: values by name."""
        script = """const out = {}; let name = "";
        for (const e of document.querySelectorAll(`#${arguments[0]} dt, #${arguments[0]} dd`))
            if (e.tagName === "DT") name = e.textContent; else out[name] = e.textContent;
        return out"""
        return self.js(script, inside)

    def pixels(self, name, left, top, wide, high):
        """Colours (high, wide, 3) of a part of a canvas."""
        script = """const [name, x, y, w, h] = arguments, copy = document.createElement("canvas");
        copy.width = w; copy.height = h;
        const pen = copy.getContext("2d", { willReadFrequently: true });
        pen.drawImage(typeof name === "string" ? document.getElementById(name) : name, -x, -y);
        let text = "";
        for (const byte of pen.getImageData(0, 0, w, h).data) text += String.fromCharCode(byte);
        return btoa(text)"""
        data = b64decode(self.js(script, name, left, top, wide, high))
        return np.frombuffer(data, dtype=np.uint8).reshape(high, wide, 4)[:, :, :3].astype(int)

    def hover(self, x, y, on="overlay"):
        """Move the pointer to a place of a canvas."""
        script = """const c = document.getElementById(arguments[0]), r = c.getBoundingClientRect();
        c.dispatchEvent(new PointerEvent("pointermove", { clientX: r.left + arguments[1], clientY: r.top + arguments[2],
          pointerId: 1, pointerType: "mouse", bubbles: true }))"""
        self.js(script, on, x, y)

    def drag(self, start, end, on="overlay", shift=False):
        box = self.js("return document.getElementById(arguments[0]).getBoundingClientRect().toJSON()", on)
        (ax, ay), (bx, by) = ([round(box["left"] + x), round(box["top"] + y)] for x, y in (start, end))
        pressed = {"modifiers": 8 if shift else 0, "button": "left", "clickCount": 1}
        self.mouse("mousePressed", ax, ay, buttons=1, **pressed)
        for part in (0.3, 0.7, 1.0):
            self.mouse("mouseMoved", ax + part * (bx - ax), ay + part * (by - ay), buttons=1, **pressed)
        self.mouse("mouseReleased", bx, by, buttons=0, **pressed)
        self.wait_drawn()

    def mouse(self, kind, x, y, **more):
        self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def wheel(self, x, y, turn, on="overlay"):
        box = self.js("return document.getElementById(arguments[0]).getBoundingClientRect().toJSON()", on)
        self.mouse("mouseWheel", box["left"] + x, box["top"] + y, deltaX=0, deltaY=turn)
        self.wait_drawn()

    def pinch(self, x, y, start, end, on="overlay", shift=(0, 0)):
        """Two fingers side by side, at distances from the middle that change from start to end; the middle may move."""
        box = self.js("return document.getElementById(arguments[0]).getBoundingClientRect().toJSON()", on)

        def fingers(part):
            gap = start + part * (end - start)
            middle = box["left"] + x + part * shift[0], box["top"] + y + part * shift[1]
            return [{"x": middle[0] + s * gap, "y": middle[1], "id": i} for i, s in enumerate((-1, 1))]

        self.command("Input.dispatchTouchEvent", type="touchStart", touchPoints=fingers(0))
        for part in (0.25, 0.5, 0.75, 1.0):
            self.command("Input.dispatchTouchEvent", type="touchMove", touchPoints=fingers(part))
        self.command("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.wait_drawn()

    def download(self, button):
        """The file that a button saves."""
        before = set(self.folder.iterdir())
        self.command("Page.setDownloadBehavior", behavior="allow", downloadPath=str(self.folder))
        self.press(button)
        end = time.monotonic() + 20
        while True:
            new = [f for f in set(self.folder.iterdir()) - before if not f.name.endswith((".crdownload", ".tmp"))]
            new = [f for f in new if not f.name.startswith(".")]
            if len(new) == 1:
                return new[0]
            assert time.monotonic() < end, "no file was saved"
            time.sleep(0.05)

    def assert_quiet(self):
        """The console is empty, and only the page itself was requested."""
        assert [entry["message"] for entry in self.driver.get_log("browser")] == []
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        assert [url for url in urls if not url.startswith(("file:", "data:", "blob:"))] == []
        assert len([url for url in urls if url.startswith("file:")]) <= 1

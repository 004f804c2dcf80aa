// As much of a browser as the page of a plane needs: it runs the page's script, moves the pointer, and says what it says.
"use strict";
const fs = require("fs"), vm = require("vm");
const asked = JSON.parse(fs.readFileSync(0, "utf8")); // file, pointers [[x, y], ...] in shares of the canvas, clicks, keys
const page = fs.readFileSync(asked.file, "utf8");
const data = page.match(/<script type="application\/json" id="data">([\s\S]*?)<\/script>/)[1];
const script = page.match(/<script>([\s\S]*?)<\/script>/)[1];
const drawn = {}, texts = [];
class Path2D { moveTo() {} lineTo() {} closePath() {} }
const brush = new Proxy({}, {
  get: (t, name) => name in t ? t[name] : (...given) => {
    drawn[name] = (drawn[name] || 0) + 1;
    if (given.some(v => typeof v === "number" && !Number.isFinite(v))) throw new Error(`${name}(${given})`);
    if (name === "fillText") texts.push(given[0]);
  },
});
class Element {
  constructor(tag) { this.tag = tag; this.children = []; this.style = {}; this.dataset = {}; this.heard = {}; this.attributes = {}; this.own = ""; }
  get textContent() { return this.own + this.children.map(c => c.textContent).join("\n"); }
  set textContent(v) { this.own = String(v); this.children = []; }
  set innerHTML(v) { throw new Error("innerHTML is never set"); }
  append(...c) { this.children.push(...c); }
  replaceChildren(...c) { this.children = c; this.own = ""; }
  setAttribute(n, v) { this.attributes[n] = String(v); }
  addEventListener(kind, f) { this.heard[kind] = f; }
  getContext() { return brush; }
  setPointerCapture() {}
  get parentElement() { return this; }
  getBoundingClientRect() { return { width: 800, height: 600 }; }
}
const elements = {};
const queue = [];
const document = Object.assign(new Element("document"), {
  documentElement: new Element("html"),
  getElementById: id => elements[id] ??= Object.assign(new Element(id), id === "data" ? { own: data } : {}),
  createElement: tag => new Element(tag),
});
const window = Object.assign(new Element("window"), { devicePixelRatio: 2, matchMedia: () => ({ matches: asked.dark || false }) });
const context = vm.createContext({
  document, window, Path2D, performance, atob, console,
  requestAnimationFrame: f => queue.push(f), setTimeout: f => queue.push(f), clearTimeout: () => {},
  getComputedStyle: () => ({ getPropertyValue: () => "#fff" }),
});
const settle = () => { for (let i = 0; queue.length && i < 1e6; i++) queue.shift()(); };
vm.runInContext(script, context);
settle();
const event = more => ({ preventDefault() {}, pointerId: 1, deltaMode: 0, ...more });
const said = [];
for (const step of asked.steps) {
  const top = elements.top;
  if (step.pointer) { top.heard.pointermove(event({ offsetX: step.pointer[0], offsetY: step.pointer[1] })); said.push(elements.told.children.map(c => c.textContent)); }
  if (step.key) document.heard.keydown(event({ key: step.key }));
  if (step.click) elements[step.click].onclick();
  if (step.wheel) top.heard.wheel(event({ deltaY: step.wheel, offsetX: 10, offsetY: 20 }));
  if (step.drag) { top.heard.pointerdown(event({ offsetX: 0, offsetY: 0 })); top.heard.pointermove(event({ offsetX: step.drag[0], offsetY: step.drag[1] })); top.heard.pointerup(event({})); }
  if (step.toggle !== undefined) { const box = elements.nodes.children[step.toggle].children[0]; box.checked = !box.checked; box.onchange(); }
  settle();
}
const pressed = ["regions", "decisions"].filter(id => elements[id].attributes["aria-pressed"] === "true");
console.log(JSON.stringify({ said, drawn, texts: [...new Set(texts)], pressed, legend: (elements.legend || { textContent: "" }).textContent, nodes: (elements.nodes || { textContent: "" }).textContent, title: elements.title.textContent, theme: document.documentElement.dataset.theme, disabled: !!elements.decisions.disabled }));

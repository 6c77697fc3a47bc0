"""A page's choice between drawing by itself and pictures, without a viewer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from support.pages import wait_for_script

if TYPE_CHECKING:
    from playwright.sync_api import Page

_START = """async () => {
  const {makeChoice} = await import("/splats/choice.js");
  const names = ["stage", "canvas", "drawcorner", "draws", "drawbox", "drawhere", "drawreason", "drawfacts"];
  window.begin = (kept) => {
    const el = Object.fromEntries(names.map((name) => [name, document.createElement(name === "drawhere" ? "input" : "div")]));
    el.stage.append(el.canvas, el.drawhere);
    el.drawhere.type = "checkbox";
    document.body.append(el.stage);
    window.told = [];
    window.said = [];
    window.stored = {draw: kept};
    window.el = el;
    window.choice = makeChoice({
      el, send: (message) => told.push(message), pass() {}, say: (words) => said.push(words), time: () => 0,
      scale: () => 1, isTyping: () => false, leave() {},
      kept: {get: (key) => stored[key] || "", set: (key, value) => { stored[key] = value; }},
    });
    choice.takeCorner({x: 0, y: 0, width: 90, height: 80});
    choice.connected();
  };
  const gl = WebGL2RenderingContext.prototype, element = HTMLCanvasElement.prototype, {Worker} = window;
  const {getContext} = element, {getExtension, getProgramParameter} = gl;
  /** Give the browser back what a test has taken away. */
  window.giveBack = () => {
    Object.assign(window, {Worker});
    Object.assign(element, {getContext});
    Object.assign(gl, {getExtension, getProgramParameter});
  };
  window.draws = () => told.filter((message) => message.t === "draws");
  const place = {rotation: [1, 0, 0, 0, 1, 0, 0, 0, 1], target: [0, 0, 0], distance: 3, up: [0, -1, 0], fov: 50,
                 model: "pinhole", near: 0.01, far: 1e10};
  const look = {paint: "color", mode: "classic", sh_degree: null, scale: 1, point_reach: 1, background: [0, 0, 0],
                map: [], range: [0, 1]};
  const drawing = {place, camera: null, placed: 0, look, navigates: true, looks_around: false, covered: []};
  window.handed = {pane: 1, drawing, reason: "", covered: [], picked: null};
  /** Have the viewer hand a pane on, or say why it does not. */
  window.hand = (reason = "", pane = 1) => {
    choice.takeLayout({size: [90, 80], panes: [[1, [0, 0, 90, 80]], [2, [0, 0, 9, 8]]]});
    choice.takeHanded({...handed, pane, drawing: reason ? null : drawing, reason});
  };
  const texels = {quick: 1, exact: 2};
  /** Have a pass come, up to a block. */
  window.beginPass = (facts) => choice.panes.takeBegin({
    pane: 1, side: 0, sh_degree: facts.sh_stored ? 1 : 0, origin: [0, 0, 0], antialiased: false, refines: false,
    has_harmonics: false, sh_stored: 0, ...facts,
  });
  window.takeBlocks = (pass, part, first, count) => {
    const size = part === "harmonics" ? 1024 * 16 : 96 + texels[part] * 1024 * 16;
    const bytes = new ArrayBuffer(count * size);
    if (part in texels) for (let i = 0; i < count; ++i) new Float32Array(bytes, i * size)[3] = texels[part];
    choice.panes.takeBlocks({pane: 1, side: 0, pass, number: 1, part, first, count, bytes: bytes.byteLength}, [bytes]);
  };
  const lossOf = () => el.stage.querySelector("canvas").getContext("webgl2").getExtension("WEBGL_lose_context");
  /** Take the GPU away from the pane, and wait until the page knows. */
  window.loseGpu = async () => {
    const {promise, resolve} = Promise.withResolvers();
    el.stage.querySelector("canvas").addEventListener("webglcontextlost", resolve);
    window.loss = lossOf();
    loss.loseContext();
    await promise;
  };
  window.restoreGpu = async () => {
    const {promise, resolve} = Promise.withResolvers();
    el.stage.querySelector("canvas").addEventListener("webglcontextrestored", resolve);
    loss.restoreContext();
    await promise;
  };
  window.endPass = (pass, is_whole = true) => choice.panes.takeEnd({pane: 1, side: 0, pass, number: 2, is_whole});
}"""


class Told(NamedTuple):
    """The words of the page, and its last message about who draws."""

    on: bool
    reason: str
    max_gaussians: int
    words: str
    """Those of the button in the corner."""
    explanation: str
    """What a click on it shows."""


class PageChoice:
    """The choice in a page, of which a test is the viewer."""

    def __init__(self, page: Page) -> None:
        self.page = page
        page.evaluate(_START)

    def run(self, script: str, *arguments: Any) -> Any:
        """Evaluate JavaScript; `choice` is what chooses."""
        return self.page.evaluate(script, *arguments)

    def begin(self, kept: str = "") -> Told:
        """Begin as a page that has kept this choice, with a connection."""
        self.run("begin", kept)
        return self.told()

    def told(self) -> Told:
        """Return what the page says now."""
        script = """() => {
          const {on, reason, max_gaussians} = draws().at(-1);
          const explanation = [el.drawreason, el.drawfacts].map((each) => each.textContent).join(" ").trim();
          return [on, reason, max_gaussians, el.draws.textContent, explanation];
        }"""
        return Told(*self.run(script))

    def until(self, condition: str) -> Told:
        """Wait until a condition of JavaScript holds."""
        wait_for_script(self.page, condition)
        return self.told()

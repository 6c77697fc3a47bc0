// Who draws: this browser or the viewer's machine, why, and the button that says it and changes it.

import {openContext} from "./gl.js";
import {makeHand} from "./hand.js";
import {makePanes} from "./panes.js";

const MOST = 6e6, FEWEST = 1e5; // Gaussians that are asked for
const BLOCK = 1024, SH_ROWS = 4; // of `store.js`: rows of a texture that a block's harmonics of degree 3 have
const SLOW_LATENCY = 150, SLOW_RATE = 4000; // ms; bytes a ms
const MEASURED = 7; // pictures after which a line is known to be slow
const LARGE = 48 * 1024; // bytes of a picture that tells the rate

/**
 * @param {{el: Record<string, any>, send: (message: object) => void, pass: (message: object) => void,
 *   say: (words: string, ms?: number) => void, time: () => number, scale: () => number, isTyping: () => boolean,
 *   kept: {get: (key: string) => string, set: (key: string, value: string) => void},
 *   leave: () => void}} page  What the page lends; `leave` gives the keyboard back to the viewer.
 */
export function makeChoice({el, send, pass, say, time, scale, isTyping, kept, leave}) {
  const asked = new URLSearchParams(location.search).get("draw"); // here or there
  const device = measureDevice();
  let most = device.most;
  let chosen = asked ?? kept.get("draw"); // by the user; "": nothing
  let isOn = false;
  let trouble = ""; // why it is not on, though it is wanted
  const latencies = [], rates = []; // of the last pictures: ms, and bytes a ms
  let corner = null; // of the first picture, in the layout

  const panes = makePanes({
    stage: el.stage, over: el.canvas, send, time, changed: show, failed, lost: suspend, restored: resume,
  });
  const hand = makeHand({panes, pass, scale, isTyping});

  /** Why this browser cannot draw; "" if it can. A software GPU only does if it is asked for. */
  const obstacle = () => device.reason || (device.isSoftware && asked !== "here" ? "this browser has no GPU to draw with" : "");

  /** Tell the viewer who draws. A new connection has to be told, and one that is to begin anew. */
  function tell() {
    const reason = isOn ? "" : obstacle() || trouble;
    send({t: "draws", on: isOn, reason: reason.slice(0, 300), max_gaussians: Math.floor(most)});
    show();
  }

  /** A connection is there. */
  function connected() {
    panes.restart();
    isOn = (chosen === "here" || isOn) && !obstacle();
    tell();
  }

  /** @param {boolean} on */
  function turn(on) {
    if (on === isOn) return;
    trouble = "";
    isOn = on && !obstacle();
    if (isOn) panes.closeAll(); else panes.leave(true);
    most = device.most;
    tell();
  }

  /** @param {string} reason @param {boolean} fewer */
  function failed(reason, fewer) {
    most /= 2;
    isOn = fewer && most >= FEWEST;
    if (!isOn) panes.leave(true);
    trouble = reason;
    tell();
  }

  /** The GPU is lost: the viewer draws until it is back. */
  function suspend(reason) {
    if (!isOn) return;
    if (panes.isComing) most = Math.max(most / 2, FEWEST); // that may have been too much for it
    isOn = false;
    trouble = reason;
    panes.leave(false);
    tell();
  }

  function resume() {
    if (isOn || !trouble) return;
    trouble = "";
    isOn = true;
    tell();
  }

  /** Begin to draw by ourselves if pictures come slowly. The user's word counts more. */
  function note(list, value) {
    list.push(value);
    if (list.length > MEASURED) list.shift();
    if (isOn || chosen || trouble || obstacle() || device.isSoftware) return;
    const isSlow = median(latencies) > SLOW_LATENCY || median(rates) < SLOW_RATE;
    if (!isSlow) return;
    turn(true);
    say("Pictures come slowly: this browser draws the scene by itself now", 5000);
  }

  // ---- the button

  /** Say who draws, at the corner of the first picture. */
  function show() {
    const {all} = panes, [first] = all;
    el.draws.hidden = !corner || Boolean(obstacle()); // the viewer's panel says why
    const words = isOn && all.some((pane) => pane.drawing) ? "Drawn here" : "Drawn there";
    const part = all.find((pane) => pane.drawing && pane.count < pane.total);
    const count = part ? ` · ${part.count.toLocaleString("en")} of ${part.total.toLocaleString("en")}` : "";
    el.draws.textContent = words + count;
    el.drawhere.checked = isOn;
    el.drawhere.disabled = !isOn && Boolean(obstacle());
    const reason = obstacle() || trouble || (isOn && first && !first.drawing ? first.reason : "");
    el.drawreason.textContent = reason ? `Pictures come from the viewer's machine: ${reason}` : isOn
      ? "The camera moves without the viewer's machine and without the line."
      : "Each move of the camera is a picture from the viewer's machine.";
  }

  /** @param {{size: number[], panes: [number, number[]][]}} layout */
  function takeLayout(layout) {
    panes.takeLayout(layout);
    corner = layout.panes.length ? layout.panes[0][1] : null;
    if (corner) {
      const [x, y, width, height] = corner, [wide, high] = layout.size;
      el.drawcorner.style.right = `${100 * (1 - (x + width) / wide)}%`;
      el.drawcorner.style.bottom = `${100 * (1 - (y + height) / high)}%`;
    }
    show();
  }

  function toggleBox() {
    el.drawbox.hidden = !el.drawbox.hidden;
    if (el.drawbox.hidden) leave();
  }

  el.draws.addEventListener("click", toggleBox);
  el.drawcorner.addEventListener("keydown", (e) => {
    if (e.key === "Escape" && !el.drawbox.hidden) toggleBox();
  });
  el.drawhere.addEventListener("change", () => {
    chosen = el.drawhere.checked ? "here" : "there";
    kept.set("draw", chosen);
    turn(el.drawhere.checked);
  });

  return {
    panes, connected, takeLayout, take: hand.take,
    noteLatency: (ms) => note(latencies, ms),
    noteRate(bytes, ms) {
      if (bytes >= LARGE && ms > 0) note(rates, bytes / ms);
    },
    /** What is drawn here, for tests and diagnosis. */
    state: () => ({on: isOn, reason: obstacle() || trouble, panes: panes.all.map((pane) => ({
      number: pane.number, shown: !pane.canvas.hidden, moving: pane.canvas.classList.contains("moving"),
      version: pane.splats.version?.number ?? 0, count: pane.count, total: pane.total, form: pane.form,
      reason: pane.reason, place: pane.orbit?.place() ?? null,
    }))}),
  };
}

/** What this browser's GPU can do. */
function measureDevice() {
  const {gl, reason, isSoftware} = openContext(document.createElement("canvas"));
  if (!gl) return {reason, isSoftware, most: 0};
  const rows = gl.getParameter(gl.MAX_TEXTURE_SIZE);
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return {reason, isSoftware, most: Math.min(Math.floor(rows / SH_ROWS) * BLOCK, MOST)};
}

/** NaN until enough was measured. */
function median(values) {
  if (values.length < MEASURED) return NaN;
  return [...values].sort((a, b) => a - b)[MEASURED >> 1];
}

// Who draws: this browser or the viewer's machine, why, and the button that says it and changes it.

import {openContext} from "./gl.js";
import {makeHand} from "./hand.js";
import {makePanes} from "./panes.js";
import {makeSlowLine} from "./slow_line.js";

const MOST = 6e6, FEWEST = 1e5; // Gaussians that are asked for
const BLOCK = 1024, SH_ROWS = 4; // of `store.js`: rows of a texture that a block's harmonics of degree 3 have
const MOST_LOSSES = 3; // of the GPU, after which the viewer draws until the user says otherwise
const SAID = 6000; // ms
const HERE = "The camera moves without the viewer's machine and without the line.";
const THERE = "Each move of the camera is a picture from the viewer's machine.";
const COMING = "The scene is on its way to this browser.";

/**
 * @param {{el: Record<string, any>, send: (message: object) => void, pass: (message: object) => void,
 *   say: (words: string, ms?: number) => void, time: () => number, scale: () => number,
 *   caption: () => {typing: boolean, keys: string},
 *   kept: {get: (key: string) => string, set: (key: string, value: string) => void},
 *   leave: () => void}} page  What the page lends; `leave` gives the keyboard back to the viewer.
 */
export function makeChoice({el, send, pass, say, time, scale, caption, kept, leave}) {
  const query = new URLSearchParams(location.search);
  const device = measureDevice();
  const line = makeSlowLine();
  let chosen = query.get("draw") || kept.get("draw"); // here or there, by the user; slow: here, by itself
  let most = device.most;
  let isOn = false;
  let trouble = ""; // why it is not on, though it is wanted
  let losses = 0; // of the GPU
  let corner = null; // where the button goes; null: nowhere

  const panes = makePanes({
    stage: el.stage, over: el.canvas, send, time, changed: show, failed, lost: suspend, restored: resume,
  });
  const hand = makeHand({panes, pass, scale, caption});

  const isWanted = () => chosen === "here" || chosen === "slow";

  /** Why this browser does not draw, or would not; "" if it can. A software GPU only does if the user asks for it. */
  function obstacle() {
    const isTooSlow = device.isSoftware && chosen !== "here";
    return device.reason || (isTooSlow ? "this browser has no GPU, so drawing here would be slow" : trouble);
  }

  /** Tell the viewer who draws from now on. A new connection has to be told, and one that is to begin anew. */
  function tell() {
    isOn = isWanted() && !obstacle();
    send({t: "draws", on: isOn, reason: sentence(obstacle()).slice(0, 300), max_gaussians: Math.floor(most)});
    show();
  }

  /** A connection is there. */
  function connected() {
    panes.restart();
    tell();
  }

  /** @param {string} who  Is to draw, as the user says: here or there. */
  function choose(who) {
    chosen = who;
    kept.set("draw", who);
    if (query.has("draw")) { // a reload has what was chosen last
      query.set("draw", who);
      history.replaceState(history.state, "", `?${query}${location.hash}`);
    }
    trouble = "";
    losses = 0;
    if (isOn && who === "here") return;
    most = device.most;
    if (isOn) panes.leave(true); else panes.closeAll();
    tell();
  }

  /** @param {string} reason @param {boolean} fewer  Whether fewer Gaussians may do. */
  function failed(reason, fewer) {
    most /= 2;
    if (!fewer || most < FEWEST) {
      trouble = reason;
      panes.leave(true);
    }
    tell();
  }

  /** The GPU is lost: the viewer draws until it is back. */
  function suspend(reason) {
    if (!isOn) return;
    if (panes.isComing) most = Math.max(most / 2, FEWEST); // that may have been too much for it
    losses += 1;
    trouble = reason;
    panes.leave(losses > MOST_LOSSES);
    tell();
  }

  function resume() {
    if (!losses || losses > MOST_LOSSES) return;
    trouble = "";
    tell();
  }

  /** Begin to draw by ourselves if pictures come slowly. The user's word counts more. */
  function noteLine() {
    if (!corner || isWanted() || chosen === "there" || obstacle() || !line.isSlow) return;
    chosen = "slow";
    kept.set("draw", chosen);
    tell();
    say("Pictures come slowly, so this browser draws the scene by itself now", SAID);
  }

  // ---- the button

  /** Say who draws, and what is still missing of it. */
  function show() {
    const drawn = panes.all.filter((pane) => pane.drawing && !pane.canvas.hidden).flatMap(sidesOf);
    const told = drawn.find((side) => missing(side).length) ?? drawn[0];
    const words = isOn && told ? ["Drawn here", ...missing(told)] : ["Drawn there"];
    const coming = panes.all.flatMap(sidesOf).find((side) => side.pass);
    el.drawcorner.hidden = !corner;
    put(el.draws, words.join(" · "));
    el.draws.classList.toggle("coming", Boolean(coming));
    el.draws.style.setProperty("--share", coming ? coming.taken / coming.pass.bytes : 1);
    el.drawhere.checked = isOn;
    el.drawhere.disabled = Boolean(device.reason);
    put(el.drawreason, explanation(isOn && told));
    put(el.drawfacts, isOn && told ? facts(told) : "");
  }

  function explanation(isHere) {
    const reason = isOn ? panes.all.find((pane) => !pane.drawing && pane.reason)?.reason : sentence(obstacle());
    if (isHere && reason) return `${HERE} But another picture comes from there. ${reason}`;
    if (isHere) return HERE;
    if (reason) return `The viewer's machine draws. ${reason}`;
    return isOn ? COMING : THERE;
  }

  /** What is missing of a pane's picture, in words. */
  function missing({count, total, form, stored}) {
    const words = [];
    if (count < Math.min(total, Math.floor(most))) words.push("coarse");
    else if (form === "quick" || (form === "exact" && stored)) words.push(form);
    if (count < total) words.push(`${grouped(count)} of ${grouped(total)}`);
    return words;
  }

  function facts({count, total, form}) {
    const extent = count < total ? `The most important ${grouped(count)} of ${grouped(total)}` : `All ${grouped(total)}`;
    return `${extent} Gaussians, ${form === "harmonics" ? "exact, with harmonics" : form}.`;
  }

  /** @param {{x: number, y: number, width: number, height: number} | null} part  Of the page: the button goes into its
   * lower right corner. */
  function takeCorner(part) {
    corner = part;
    if (part) {
      el.drawcorner.style.right = `calc(100% - ${(part.x + part.width) / scale()}px)`;
      el.drawcorner.style.bottom = `calc(100% - ${(part.y + part.height) / scale()}px)`;
      el.drawcorner.style.maxWidth = `${part.width / scale()}px`;
    }
    show();
  }

  function toggleBox() {
    el.drawbox.hidden = !el.drawbox.hidden;
    el.draws.setAttribute("aria-expanded", String(!el.drawbox.hidden));
    if (el.drawbox.hidden) leave();
  }

  el.draws.addEventListener("click", toggleBox);
  el.drawcorner.addEventListener("keydown", (e) => {
    if (e.key === "Escape" && !el.drawbox.hidden) toggleBox();
  });
  el.drawhere.addEventListener("change", () => choose(el.drawhere.checked ? "here" : "there"));

  return {
    /** @param {object} message  Of the viewer. It comes late where this browser draws no longer.
     * @param {number} newestLayout */
    takeHanded(message, newestLayout) {
      if (isOn) panes.takeHanded(message, newestLayout);
    },
    panes, connected, choose, takeCorner, takeLayout: panes.takeLayout, take: hand.take,
    noteLatency(ms) {
      line.noteLatency(ms);
      noteLine();
    },
    noteRate(bytes, ms) {
      line.noteRate(bytes, ms);
      noteLine();
    },
    /** What is drawn here, for tests and diagnosis. */
    state: () => ({on: isOn, reason: obstacle(), words: el.draws.textContent, panes: panes.all.map((pane) => ({
      number: pane.number, shown: !pane.canvas.hidden, moving: pane.canvas.classList.contains("moving"),
      version: pane.splats.version?.number ?? 0, second: pane.splats.second?.version?.number ?? 0,
      count: pane.sides[0].count, total: pane.sides[0].total, form: pane.sides[0].form, reason: pane.reason,
      place: (pane.lead ?? pane).orbit?.place() ?? null, speed: pane.drawing?.speed ?? 1, link: pane.drawing?.link ?? null,
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

const sidesOf = ({drawing, sides}) => (drawing?.second ? sides : sides.slice(0, 1));
const grouped = (count) => count.toLocaleString("en");
const sentence = (words) => words && `${words[0].toUpperCase()}${words.slice(1)}.`;

function put(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

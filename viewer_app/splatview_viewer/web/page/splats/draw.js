// Draws Gaussians on a canvas of the page, from packed blocks: versions come in parts, and are drawn when they are whole.

import {depthOf} from "./camera.js";
import {openContext} from "./gl.js";
import {makePasses} from "./passes.js";
import {makeStore} from "./store.js";

/**
 * @typedef {import("./camera.js").Camera} Camera
 * @typedef {import("./store.js").Version} Version
 * @typedef {{paint?: string, scale?: number, mode?: string, sh_degree?: number | null, background?: number[],
 *   point_reach?: number, selected?: Uint8Array | null, map?: Float32Array, range?: number[]}} Options  As
 *   `render.base.RenderOptions`. paint: also depth and alpha. mode: by default the version's. selected: for each
 *   Gaussian 1 where it is hidden, 2 where it is marked. map and range: colours of numbers, and what is at both ends.
 */

/** @param {HTMLCanvasElement} canvas @param {() => Worker} makeWorker  Makes a worker of sort_worker.js. */
export function makeSplats(canvas, makeWorker = () => new Worker(new URL("sort_worker.js", import.meta.url))) {
  const sorter = makeWorker();
  const splats = {
    begin, put, commit, draw, pixels, close,
    version: null, // that is drawn
    onrestored: () => {}, // called when the GPU has come back, without any version
    /** Why pictures should come from the viewer instead; "": they need not. */
    get reason() {
      return trouble || (isSoftware ? "this browser draws without a GPU" : "");
    },
  };
  let trouble = "", isSoftware = false;
  let parts = null; // {store, passes}; null: nothing can be drawn
  let view = null; // {camera, options, ticket}: what was asked for last
  let tickets = 0; // of what was asked for
  let waiting = []; // [ticket, resolve] of what was not drawn in its own order yet
  let committed = null; // resolves once the version that has come is drawn, or another one begins
  let isHeld = false; // whether there is room for what is put
  let age = 0; // of the version that comes: a worker's answer about an older one is dropped
  let sorting = false, again = false; // whether the worker is at work, and is wanted once more
  let sorted = ""; // what the order was made for
  let changed = 0; // counts what changes an order besides the camera
  let spare = null; // a buffer for the next order
  let selected = null; // what the worker knows of it

  function open() {
    const context = openContext(canvas);
    trouble = context.reason;
    isSoftware = context.isSoftware;
    splats.version = null;
    isHeld = false;
    sorted = "";
    if (!context.gl) return;
    parts = {store: makeStore(context.gl, sorter), passes: makePasses(context.gl, context.blendsFloats)};
  }

  /** Begin with a version. Returns whether it can be held; if not, `reason` says why. @param {Version} version */
  function begin(version) {
    if (!parts) return false;
    finishCommit(false);
    age += 1;
    trouble = parts.store.begin(version);
    isHeld = !trouble;
    return isHeld;
  }

  /** Take a part of a block: of the version that comes, or after its commit for the better of the one that is drawn.
   * The buffer must not be used afterwards. */
  function put(block, part, buffer) {
    if (!parts || !isHeld) return;
    parts.store.put(block, part, buffer);
    changed += 1;
  }

  /** Have the version drawn that has come. Resolves to true once it is, to false if another one overtakes it. Until
   * then the one before is drawn, and no other should begin. */
  function commit() {
    if (!isHeld || !parts?.store.coming()) return Promise.resolve(false);
    changed += 1;
    return new Promise((resolve) => {
      committed = resolve;
      if (view) sort();
      else swap();
    });
  }

  function finishCommit(isDrawn) {
    committed?.(isDrawn);
    committed = null;
  }

  function swap() {
    parts.store.swap();
    splats.version = parts.store.drawn().version;
    finishCommit(true);
  }

  /**
   * Draw at once, in the order that is there, and again once that of this camera is. Resolves then.
   * @param {Camera} camera @param {Options} options
   */
  function draw(camera, options = {}) {
    if (!parts) return Promise.resolve();
    tickets += 1;
    view = {camera, options};
    takeSelection(options.selected ?? null);
    paint();
    return new Promise((resolve) => {
      waiting.push([tickets, resolve]);
      sort();
    });
  }

  function takeSelection(flags) {
    if (flags === selected) return;
    selected = flags;
    changed += 1;
    sorter.postMessage({t: "flags", flags});
  }

  function paint() {
    const {camera, options} = view;
    if (canvas.width !== camera.width) canvas.width = camera.width;
    if (canvas.height !== camera.height) canvas.height = camera.height;
    parts.passes.draw(parts.store.drawn(), camera, options);
  }

  /** Have the worker sort for the newest view, unless the order is there already. */
  function sort() {
    if (sorting) {
      again = true;
      return;
    }
    const set = committed ? parts.store.coming() : parts.store.drawn();
    if (!set.version) {
      finishDraws(tickets);
      return;
    }
    const depth = depthOf(view.camera, set.version.origin), key = JSON.stringify([set.index, age, changed, depth]);
    if (key === sorted) {
      finishDraws(tickets);
      return;
    }
    sorting = true;
    sorter.postMessage({t: "sort", set: set.index, age, key, ticket: tickets, depth, spare}, spare ? [spare] : []);
    spare = null;
  }

  sorter.onmessage = ({data}) => {
    sorting = false;
    spare = data.buffer;
    const isDrawn = data.set === parts?.store.drawn().index;
    if (parts && (isDrawn || (committed && data.age === age))) {
      if (!isDrawn) swap();
      parts.passes.takeOrder(new Int32Array(data.buffer, 0, data.visible), splats.version.count);
      sorted = data.key;
      paint();
      finishDraws(data.ticket);
    }
    if (parts && (again || committed || waiting.length)) {
      again = false;
      sort();
    }
  };

  sorter.onerror = () => {
    trouble = "the script that sorts cannot run beside this page";
    close();
  };

  function finishDraws(ticket) {
    const done = waiting.filter(([each]) => each <= ticket);
    waiting = waiting.filter(([each]) => each > ticket);
    for (const [, resolve] of done) resolve();
  }

  /** The last picture before it was laid over the background: premultiplied RGBA floats, row 0 at the top. */
  function pixels() {
    return parts.passes.pixels();
  }

  function lose(event) {
    event.preventDefault(); // so that it comes back
    parts = null;
    trouble = "the browser has taken the GPU away for now";
    finishCommit(false);
    finishDraws(tickets);
  }

  function restore() {
    open();
    splats.onrestored();
  }

  function close() {
    parts = null;
    sorter.terminate();
    canvas.removeEventListener("webglcontextlost", lose);
    canvas.removeEventListener("webglcontextrestored", restore);
    finishCommit(false);
    finishDraws(tickets);
  }

  canvas.addEventListener("webglcontextlost", lose);
  canvas.addEventListener("webglcontextrestored", restore);
  open();
  return splats;
}

// Draws Gaussians on a canvas of the page, from packed blocks: versions come in parts, and are drawn when they are whole.

import {depthOf} from "./camera.js";
import {makePrograms, openContext} from "./gl.js";
import {makePasses} from "./passes.js";
import {makeStore} from "./store.js";

const ANSWERS_WITHIN = 20000; // ms; the largest scenes take one or two seconds

/**
 * @typedef {import("./camera.js").Camera} Camera
 * @typedef {import("./store.js").Version} Version
 * @typedef {{paint?: string, scale?: number, mode?: string, sh_degree?: number | null, background?: number[],
 *   point_reach?: number, map?: Float32Array, range?: number[], exact_background?: number[],
 *   second?: Second | null}} Options  As `render.base.RenderOptions`. paint: also depth and alpha. mode: by default the
 *   version's. map and range: colours of numbers, and what is at both ends; it is measured where it is not given.
 *   exact_background: of what `difference` measures.
 * @typedef {{look: Options, near: number, far: number, mode: string, position: number, gain: number}} Second  Another
 *   scene in the same picture, and how they make one: as `core.handed.HandedSecond`.
 */

/**
 * @param {HTMLCanvasElement} canvas @param {() => Worker} makeWorker  Makes a worker of sort_worker.js.
 * @param {{context: object, paintSoon: () => void} | null} leader  What draws on this canvas already, and this scene
 *   into a picture of both.
 */
export function makeSplats(canvas, makeWorker = () => new Worker(new URL("sort_worker.js", import.meta.url)),
                           leader = null) {
  const sorter = makeWorker();
  const splats = {
    begin, put, commit, mark, draw, repaint, pixels, close, paintLayer, exactLayer, withSecond, dropSecond,
    difference,
    second: null, // another scene, which is compared with this one
    version: null, // that is drawn
    onlost: () => {}, // called when the GPU has gone, and `reason` says so
    onranged: () => {}, // called with the range of numbers by {show, low, high}, when it was measured
    onrestored: () => {}, // called when the GPU has come back, without any version
    onfailed: () => {}, // called when nothing can be drawn any more, and `reason` says why
    /** Why pictures should come from the viewer instead; "": they need not. */
    get reason() {
      return trouble || (isSoftware ? "this browser draws without a GPU" : "");
    },
  };
  let trouble = "", isSoftware = false;
  let context = null; // of `openContext`, with its programs
  let parts = null; // {store, passes}; null: nothing can be drawn
  let isHeld = false; // whether there is room for what is put
  let committed = null; // resolves once the version that has come is drawn, or another one begins
  let view = null; // {camera, options}: what was asked for last
  let drawn = 0; // how often something was asked for
  let waiting = []; // [drawn, resolve] of what was not drawn in its own order yet
  let frame = 0; // of the browser's, in which is drawn
  let ranging = 0; // until the range of numbers is measured again
  let ranged = 0; // when it was measured last
  let sorting = false, again = false; // whether the worker is at work, and is wanted once more
  let order = {key: "", drawn: 0}; // what the order that is there was made for
  let spare = null; // a buffer for the next order
  let answers = 0, watch = 0; // of the worker; until the first one

  function open() {
    context = leader ? leader.context : openContext(canvas);
    trouble = context.reason;
    isSoftware = context.isSoftware;
    splats.version = null;
    isHeld = false;
    order = {key: "", drawn: 0};
    ranged = 0;
    if (!context.gl) return;
    context.use ??= makePrograms(context.gl);
    parts = {store: makeStore(context.gl, sorter), passes: makePasses(context)};
  }

  /** What draws the other scene of the same picture. */
  function withSecond() {
    splats.second ??= makeSplats(canvas, makeWorker, {context, paintSoon});
    return splats.second;
  }

  function dropSecond() {
    splats.second?.close();
    splats.second = null;
  }

  /** Begin with a version. Returns whether it can be held; if not, `reason` says why. @param {Version} version */
  function begin(version) {
    if (!parts) return false;
    finishCommit(false);
    trouble = parts.store.begin(version);
    isHeld = !trouble;
    return isHeld;
  }

  /** Take a part of a block: of the version that comes, or after its commit for the better of the one that is drawn.
   * The buffer must not be used afterwards. */
  function put(block, part, buffer) {
    if (parts && isHeld) parts.store.put(block, part, buffer);
  }

  /** Have the version drawn that has come. Resolves to true once it is, to false if another one overtakes it. Until
   * then the one before is drawn, and no other should begin. */
  function commit() {
    if (!isHeld || !parts?.store.coming()) return Promise.resolve(false);
    return new Promise((resolve) => {
      committed = resolve;
      if (view) sort();
      else swap();
    });
  }

  /** Have these Gaussians of a version stand out in the next picture. @param {number} pass @param {number[]} marked */
  function mark(pass, marked) {
    parts?.store.mark(pass, marked);
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
   * Draw in the browser's next frame, in the order that is there, and again once that of this camera is. Resolves then.
   * @param {Camera} camera @param {Options} options
   */
  function draw(camera, options = {}) {
    if (!parts) return Promise.resolve();
    drawn += 1;
    view = {camera, options};
    const own = new Promise((resolve) => {
      waiting.push([drawn, resolve]);
      paintSoon();
      sort();
    });
    const {second} = options;
    if (!second) return own;
    return Promise.all([own, splats.second?.draw({...camera, near: second.near, far: second.far}, second.look)]);
  }

  /** Not more often than the browser shows: what moves a camera is quicker than that. */
  function paintSoon() {
    if (leader) leader.paintSoon();
    else frame ||= requestAnimationFrame(paint);
  }

  function paint() {
    frame = 0;
    if (!parts) return;
    const {camera, options} = view;
    if (canvas.width !== camera.width) canvas.width = camera.width;
    if (canvas.height !== camera.height) canvas.height = camera.height;
    try {
      const layer = options.second ? splats.second?.paintLayer() : null;
      paintOwn(Boolean(layer));
      if (layer) parts.passes.join(layer, options.second);
      finishDraws(order.drawn);
    } catch (error) {
      fail(error.message);
    }
  }

  function paintOwn(isLayer) {
    const due = parts.passes.draw(parts.store.drawn(), view.camera, view.options, isLayer);
    clearTimeout(ranging);
    if (due) ranging = setTimeout(paintSoon, due);
    tellRange();
  }

  function tellRange() {
    const {show, low, high, at} = parts.passes.range();
    if (at === ranged) return;
    ranged = at;
    splats.onranged({show, low, high});
  }

  /** Draw into a texture, as one of two. Returns it; null while there is no version. */
  function paintLayer() {
    if (!parts || !view) return null;
    finishDraws(order.drawn);
    if (!splats.version) return null;
    paintOwn(true);
    return parts.passes.layer();
  }

  /** The mean squared difference of both pictures; NaN where there are not two. */
  function difference() {
    const layer = splats.second?.exactLayer();
    return layer && exactLayer() ? parts.passes.difference(layer) : NaN;
  }

  /** The same as `paintLayer`, over the background of what is measured. */
  function exactLayer() {
    if (!parts || !view || !splats.version) return null;
    const {camera, options} = view;
    parts.passes.draw(parts.store.drawn(), camera, {...options, background: options.exact_background}, true);
    return parts.passes.layer();
  }

  /** Have the worker sort for the newest view, unless the order is there already. */
  function sort() {
    again = sorting;
    if (sorting) return;
    const set = committed ? parts.store.coming() : parts.store.drawn();
    const depth = depthOf(view.camera, set.version?.origin ?? [0, 0, 0]);
    const key = JSON.stringify([set.index, set.age, set.puts, depth]);
    if (key === order.key || !set.version) {
      order.drawn = drawn;
      return;
    }
    sorting = true;
    const message = {t: "sort", set: set.index, age: set.age, key, drawn, depth, spare};
    sorter.postMessage(message, spare ? [spare] : []);
    spare = null;
    // Some browsers keep a worker from starting without a word.
    if (!answers) watch ||= setTimeout(() => fail("the worker for sorting does not answer"), ANSWERS_WITHIN);
  }

  sorter.onmessage = ({data}) => {
    clearTimeout(watch);
    answers += 1;
    sorting = false;
    spare = data.buffer;
    if (!parts) return;
    if (committed && data.age === parts.store.coming().age) swap();
    const isOrder = data.age === parts.store.drawn().age;
    if (isOrder) {
      parts.passes.takeOrder(new Int32Array(data.buffer, 0, data.visible), splats.version.count);
      order = {key: data.key, drawn: data.drawn};
      paintSoon();
    }
    if (again || committed || !isOrder) sort();
  };

  sorter.onerror = ({message}) => fail(message ? `sorting stopped: ${message}` : "this page may start no worker for sorting");

  function fail(reason) {
    close();
    trouble = reason;
    splats.onfailed();
  }

  function finishDraws(last) {
    const done = waiting.filter(([each]) => each <= last);
    waiting = waiting.filter(([each]) => each > last);
    for (const [, resolve] of done) resolve();
  }

  /** Draw the last picture once more, at once: scripts can read a canvas until the browser shows it. */
  function repaint() {
    if (view) paint();
  }

  /** The last picture before it was laid over the background: premultiplied RGBA floats, row 0 at the top. */
  function pixels() {
    return parts.passes.pixels();
  }

  function stop() {
    parts = null;
    finishCommit(false);
    finishDraws(drawn);
  }

  function lose(event) {
    event.preventDefault(); // so that it comes back
    stop();
    dropSecond();
    trouble = "the browser has taken the GPU away for now";
    splats.onlost();
  }

  function restore() {
    open();
    if (parts) splats.onrestored(); // all versions are gone
    else splats.onfailed();
  }

  function close() {
    dropSecond();
    if (leader) parts?.store.close(); // the canvas stays
    stop();
    clearTimeout(watch);
    clearTimeout(ranging);
    sorter.terminate();
    canvas.removeEventListener("webglcontextlost", lose);
    canvas.removeEventListener("webglcontextrestored", restore);
  }

  if (!leader) {
    canvas.addEventListener("webglcontextlost", lose);
    canvas.addEventListener("webglcontextrestored", restore);
  }
  open();
  return splats;
}

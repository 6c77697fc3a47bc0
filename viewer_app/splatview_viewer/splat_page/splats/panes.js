// Panes whose Gaussians this browser draws: a canvas for each between the page's two layers, and what it shows.

import {makeSplats} from "./draw.js";
import {makeOrbit} from "./orbit.js";

const SETTLE = 700, SETTLED = 200; // ms after a move until the interface shows again; after the viewer knows its end
const DIGITS = 4; // of numbers that the viewer writes with three, so that a training does not change them all the time

/**
 * @typedef {[number, number, number, number]} Box  x, y, width and height in pixels of the layout.
 * @typedef {import("./draw.js").Options} Look
 * @typedef {{number: number, box: Box, clip: Box, opacity: number}} Photo  clip: what is seen of the box.
 * @typedef {{place: import("./orbit.js").Place, camera: import("./camera.js").Camera | null, placed: number,
 *   look: Look, navigates: boolean, looks_around: boolean, covered: Box[], grips: Box[], photo: Photo | null}} Drawing
 * @typedef {{pane: number, drawing: Drawing | null, reason: string}} HandedScene
 * @typedef {{pane: number, pass: number, version: number, refines: boolean, count: number, total: number, form: string,
 *   has_harmonics: boolean, sh_degree: number, sh_stored: number, origin: number[], antialiased: boolean,
 *   bytes: number}} SceneBegin
 * @typedef {{pane: number, pass: number, number: number, part: "quick" | "exact" | "harmonics", first: number,
 *   count: number, bytes: number}} Blocks
 * @typedef {{pane: number, pass: number, number: number, is_whole: boolean}} SceneEnd
 * @typedef {{pane: number, pass: number, marked: number[]}} MarkedScene
 * @typedef {{pane: number, number: number, bytes: number}} PanePhoto
 */

/**
 * @param {{stage: HTMLElement, over: HTMLElement, send: (message: object) => void, time: () => number,
 *   changed: () => void, failed: (reason: string, fewer: boolean) => void, lost: (reason: string) => void,
 *   restored: () => void}} page  What the page lends: where canvases go and before what, how messages go to the viewer,
 *   its clock, and what is told of a new state, of a failure (`fewer`: with fewer Gaussians it may go), of a GPU that
 *   is lost and of one that is back.
 */
export function makePanes({stage, over, send, time, changed, failed, lost, restored}) {
  const panes = new Map();
  let boxes = new Map(); // of the panes that are open
  let size = [1, 1]; // of the layout
  let placed = 0; // places that were sent over this connection
  let age = 0; // of the connection: an older one is answered no more

  function open(number) {
    const canvas = document.createElement("canvas"), splats = makeSplats(canvas);
    canvas.className = "pane";
    canvas.hidden = true;
    const photo = document.createElement("canvas"); // over it
    photo.className = "photo";
    photo.hidden = true;
    for (const each of [canvas, photo]) {
      each.setAttribute("aria-hidden", "true");
      stage.insertBefore(each, over);
    }
    const pane = {
      number, canvas, splats, photo, photoNumber: 0, box: boxes.get(number) ?? [0, 0, 1, 1], reason: "",
      drawing: null, // as the viewer said last
      look: null, // of that, as it is drawn
      orbit: null, camera: null, // the second is drawn exactly, until a hand has moved the first
      placed: 0, // number of the last place that was sent
      moves: 0, // by how many hands it is moved: a drag, the wheel, keys
      range: null, toldRange: "", // of numbers, as measured, and as the viewer knows it
      pass: null, taken: 0, // that comes, and bytes of it that have come
      count: 0, total: 0, form: "", stored: 0, // of what is drawn
      isArranged: false, spared: 2, // whether a layout had it; those that come late may be from before it
      isLeaving: false, isEnding: false, // the next picture is the viewer's; and nothing is kept
      isAnswered: false, settling: 0, // after a move
    };
    splats.onlost = () => {
      canvas.hidden = true;
      lost(splats.reason);
    };
    splats.onrestored = restored;
    splats.onfailed = () => failed(splats.reason, false);
    splats.onranged = ({show, low, high}) => {
      pane.range = {show, low: Number(low.toPrecision(DIGITS)), high: Number(high.toPrecision(DIGITS))};
      tellRange(pane);
    };
    panes.set(number, pane);
    arrange(pane);
    return pane;
  }

  function close(pane) {
    clearTimeout(pane.settling);
    pane.drawing = null;
    panes.delete(pane.number);
    pane.splats.close();
    pane.canvas.getContext("webgl2")?.getExtension("WEBGL_lose_context")?.loseContext(); // its memory is free at once
    pane.canvas.remove();
    pane.photo.remove();
  }

  function closeAll() {
    for (const pane of [...panes.values()]) close(pane);
    changed();
  }

  /** A viewer knows nothing of this page's scenes: its new ones replace what is drawn. */
  function restart() {
    placed = 0;
    age += 1;
    for (const pane of panes.values()) Object.assign(pane, {placed: 0, pass: null, toldRange: ""});
  }

  /** Have the viewer's pictures again, from the next one on. `forever`: nothing is kept for later. */
  function leave(forever) {
    for (const pane of [...panes.values()]) {
      leavePane(pane);
      pane.isEnding = forever;
      if (forever && !pane.isLeaving) close(pane);
    }
    changed();
  }

  function leavePane(pane) {
    Object.assign(pane, {drawing: null, isLeaving: !pane.canvas.hidden});
    settle(pane);
  }

  /** The viewer's picture is there. */
  function pictureShown() {
    for (const pane of [...panes.values()]) {
      if (!pane.isLeaving) continue;
      pane.isLeaving = false;
      pane.canvas.hidden = true;
      layPhoto(pane);
      if (pane.isEnding) close(pane);
    }
  }

  /** @param {{size: number[], panes: [number, Box][]}} layout  That is shown. */
  function takeLayout(layout) {
    boxes = new Map(layout.panes);
    size = layout.size;
    for (const pane of [...panes.values()]) {
      const box = boxes.get(pane.number);
      if (box) {
        Object.assign(pane, {box, isArranged: true});
        arrange(pane);
        draw(pane);
      } else if (pane.isArranged || !pane.spared--) {
        close(pane);
      }
    }
    changed();
  }

  const arrange = ({canvas, box}) => lie(canvas, box);

  /** Put an element where a box of the layout is. */
  function lie({style}, [x, y, width, height]) {
    style.left = `${100 * x / size[0]}%`;
    style.top = `${100 * y / size[1]}%`;
    style.width = `${100 * width / size[0]}%`;
    style.height = `${100 * height / size[1]}%`;
  }

  // ---- what the viewer says

  /** @param {HandedScene} message */
  function takeHanded({pane: number, drawing, reason}) {
    try {
      const pane = panes.get(number) ?? open(number);
      pane.reason = reason;
      if (drawing) take(pane, drawing); else leavePane(pane);
      changed();
    } catch (error) {
      failed(`this browser cannot draw: ${error.message}`, false);
    }
  }

  function take(pane, drawing) {
    const {look} = drawing;
    if (pane.look?.paint !== look.paint) pane.toldRange = "";
    Object.assign(pane, {drawing, isLeaving: false});
    pane.look = {...look, map: look.map.length ? Float32Array.from(look.map) : undefined};
    if (drawing.placed >= pane.placed) {
      if (!pane.moves) Object.assign(pane, {orbit: makeOrbit(drawing.place), camera: drawing.camera});
      pane.isAnswered = true;
      if (pane.settling) settleWithin(pane, SETTLED);
    }
    layPhoto(pane);
    draw(pane);
  }

  /** @param {SceneBegin} message */
  function takeBegin(message) {
    const pane = panes.get(message.pane);
    if (!pane) return;
    const {version, pass, count, sh_degree, sh_stored, origin, antialiased} = message;
    Object.assign(pane, {pass: message, taken: 0});
    if (message.refines) {
      if (pane.splats.version?.number !== version) pane.pass = null;
    } else if (!pane.splats.begin({number: version, pass, count, sh_degree, sh_stored, origin, antialiased})) {
      pane.pass = null;
      failed(pane.splats.reason, true);
    }
    changed();
  }

  /** @param {Blocks} message @param {ArrayBuffer[]} parts  Of their bytes. */
  function takeBlocks(message, parts) {
    const pane = panes.get(message.pane), {count, first, part} = message;
    try {
      if (pane?.pass?.pass === message.pass) {
        const bytes = joined(parts, message.bytes), piece = message.bytes / count;
        for (let i = 0; i < count; ++i) pane.splats.put(first + i, part, bytes.slice(i * piece, (i + 1) * piece));
        pane.taken += message.bytes;
        changed();
      }
    } catch (error) {
      pane.pass = null;
      failed(`what came of the scene cannot be drawn: ${error.message}`, false);
    }
    send({t: "taken", number: message.number});
  }

  /** @param {SceneEnd} message */
  async function takeEnd({pane: number, pass: passNumber, number: messageNumber, is_whole}) {
    const pane = panes.get(number), pass = pane?.pass, own = age;
    if (pass?.pass === passNumber) {
      pane.pass = null;
      if (is_whole && (pass.refines || await pane.splats.commit())) {
        const {count, total, has_harmonics, form, sh_stored} = pass;
        Object.assign(pane, {count, total, form: has_harmonics ? "harmonics" : form, stored: sh_stored});
        draw(pane);
      }
      changed();
    }
    if (own === age) send({t: "taken", number: messageNumber});
  }

  /** @param {PanePhoto} message @param {ArrayBuffer[]} parts  Of the file. */
  async function takePhoto({pane: number, number: photoNumber}, parts) {
    const pane = panes.get(number);
    if (!pane) return;
    pane.photoNumber = photoNumber;
    const image = await createImageBitmap(new Blob(parts, {type: "image/jpeg"}));
    if (pane.photoNumber === photoNumber) { // no newer one overtook it
      Object.assign(pane.photo, {width: image.width, height: image.height});
      pane.photo.getContext("2d").drawImage(image, 0, 0);
      pane.photo.dataset.number = photoNumber;
      layPhoto(pane);
    }
    image.close();
  }

  /** Lay the photograph over the picture, or none. */
  function layPhoto({photo, drawing, canvas}) {
    const there = drawing?.photo;
    photo.hidden = canvas.hidden || photo.dataset.number !== String(there?.number);
    if (photo.hidden) return;
    const [x, y, width, height] = there.box, [left, top, wide, high] = there.clip;
    const edges = [top - y, x + width - left - wide, y + height - top - high, left - x];
    lie(photo, there.box);
    photo.style.opacity = there.opacity;
    photo.style.clipPath = `inset(${edges.map((edge, i) => `${100 * edge / (i % 2 ? width : height)}%`).join(" ")})`;
  }

  /** @param {MarkedScene} message */
  function takeMarks({pane: number, pass, marked}) {
    const pane = panes.get(number);
    if (!pane) return;
    pane.splats.mark(pass, marked);
    draw(pane);
  }

  // ---- what is drawn

  async function draw(pane) {
    if (!pane.drawing) return;
    const camera = pane.camera ?? pane.orbit.cameraFor(Math.max(pane.box[2], 1), Math.max(pane.box[3], 1));
    await pane.splats.draw(camera, pane.look);
    const isSeen = Boolean(pane.splats.version && pane.drawing);
    if (!isSeen || !pane.canvas.hidden) return;
    pane.canvas.hidden = false;
    layPhoto(pane);
    changed();
  }

  /** The pane whose camera moves with a hand at this place, if any. */
  function paneAt(x, y) {
    const isIn = ([left, top, width, height]) => x >= left && y >= top && x < left + width && y < top + height;
    for (const pane of panes.values()) {
      if (!canMove(pane) || !isIn(pane.box)) continue;
      const {covered, grips} = pane.drawing;
      if (![...covered, ...grips].some(isIn)) return pane;
    }
    return null;
  }

  const canMove = (pane) => Boolean(pane.drawing?.navigates) && !pane.canvas.hidden;

  /** A hand begins to move. What lies over the picture belongs to the camera of before: the canvas goes over it. */
  function beginMove(pane) {
    pane.moves += 1;
    pane.camera = null;
    pane.isAnswered = false;
    clearTimeout(pane.settling);
    pane.settling = 0;
    if (pane.drawing) pane.canvas.style.clipPath = uncovered(pane); // else the viewer has just taken it back
    pane.canvas.classList.add("moving");
  }

  /** It has ended: the viewer learns where. */
  function endMove(pane) {
    pane.moves -= 1;
    if (pane.moves || !pane.drawing) return;
    placed += 1;
    pane.placed = placed;
    send({t: "place", pane: pane.number, number: placed, place: pane.orbit.place(), at: time()});
    tellRange(pane);
    settleWithin(pane, SETTLE);
  }

  /** Tell the viewer what the colours of numbers mean, unless it knows. */
  function tellRange({number, range, drawing, moves, toldRange}) {
    const text = JSON.stringify(range);
    if (!range || !drawing || moves || text === toldRange) return;
    panes.get(number).toldRange = text;
    send({t: "range", pane: number, ...range, at: time()});
  }

  function settleWithin(pane, ms) {
    clearTimeout(pane.settling);
    pane.settling = setTimeout(() => settle(pane), ms);
  }

  function settle(pane) {
    clearTimeout(pane.settling);
    pane.settling = 0;
    pane.canvas.classList.remove("moving");
    pane.canvas.style.clipPath = "";
  }

  /** The interface is there as it is now. */
  function interfaceShown() {
    for (const pane of panes.values()) if (pane.settling && pane.isAnswered) settle(pane);
  }

  /** The pictures as they are, laid onto a picture of the layout. @param {CanvasRenderingContext2D} context */
  function copyTo(context) {
    for (const {canvas, splats, box, photo, drawing} of panes.values()) {
      if (canvas.hidden) continue;
      splats.repaint(); // a canvas keeps what it shows no longer than the browser needs it
      context.drawImage(canvas, ...box);
      if (drawing?.photo && !photo.hidden) copyPhoto(context, photo, drawing.photo);
    }
  }

  function copyPhoto(context, photo, {box, clip, opacity}) {
    context.save();
    context.beginPath();
    context.rect(...clip);
    context.clip();
    context.globalAlpha = opacity;
    context.drawImage(photo, ...box);
    context.restore();
  }

  return {
    restart, leave, closeAll, pictureShown, interfaceShown, takeLayout, takeHanded, takeBegin, takeBlocks, takeEnd,
    takeMarks, takePhoto, draw, paneAt, canMove, beginMove, endMove, copyTo,
    /** Whether a version is on its way. */
    get isComing() { return [...panes.values()].some((pane) => pane.pass && !pane.pass.refines); },
    get all() { return [...panes.values()]; },
  };
}

function joined(parts, size) {
  if (parts.length === 1) return parts[0];
  const bytes = new Uint8Array(size);
  let from = 0;
  for (const part of parts) {
    bytes.set(new Uint8Array(part), from);
    from += part.byteLength;
  }
  return bytes.buffer;
}

/** The part of a pane that nothing covers, as a shape of CSS for its canvas. */
function uncovered({canvas, box, drawing}) {
  const scale = [canvas.clientWidth / box[2], canvas.clientHeight / box[3]];
  let open = [[0, 0, box[2], box[3]]]; // left, top, right, bottom
  for (const [x, y, width, height] of drawing.covered) {
    const [left, top] = [x - box[0], y - box[1]];
    open = open.flatMap((one) => without(one, [left, top, left + width, top + height]));
  }
  const rects = open.map((one) => one.map((value, i) => value * scale[i % 2]));
  return `path("${rects.map(([l, t, r, b]) => `M${l} ${t}H${r}V${b}H${l}Z`).join("")}")`;
}

/** What of a rectangle lies outside another one, in up to four rectangles. */
function without([l, t, r, b], [left, top, right, bottom]) {
  if (left >= r || right <= l || top >= b || bottom <= t) return [[l, t, r, b]];
  const [high, low] = [Math.max(t, top), Math.min(b, bottom)];
  const around = [[l, t, r, high], [l, low, r, b], [l, high, Math.max(l, left), low], [Math.min(r, right), high, r, low]];
  return around.filter(([a, c, d, e]) => d > a && e > c);
}

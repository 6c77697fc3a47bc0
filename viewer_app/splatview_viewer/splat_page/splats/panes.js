// Panes whose Gaussians this browser draws: a canvas for each between the page's two layers, and what it shows.

import {makeSplats} from "./draw.js";
import {fitted, makeOrbit} from "./orbit.js";

const SETTLE = 700, SETTLED = 200; // ms after a move until the interface shows again; after the viewer knows its end
const DIGITS = 4; // of numbers that the viewer writes with three, so that a training does not change them all the time
const MEASURE = 250; // ms after a picture of two scenes until it is measured
const SAME_SIZE = 2; // pixels by which the sides of panes of one size differ at most

/**
 * @typedef {[number, number, number, number]} Box  x, y, width and height in pixels of the layout.
 * @typedef {import("./draw.js").Options} Look
 * @typedef {{number: number, box: Box, clip: Box, opacity: number}} Photo  clip: what is seen of the box.
 * @typedef {{place: import("./orbit.js").Place, camera: import("./camera.js").Camera | null, placed: number,
 *   look: Look, navigates: boolean, looks_around: boolean, covered: Box[], grips: Box[], photo: Photo | null,
 *   speed: number, link: number | null, is_active: boolean, second: Second | null}} Drawing
 * @typedef {import("./draw.js").Second & {line: number}} Second
 * @typedef {{pane: number, drawing: Drawing | null, reason: string}} HandedScene
 * @typedef {{pane: number, side: 0 | 1, pass: number, version: number, refines: boolean, count: number, total: number,
 *   form: string, has_harmonics: boolean, sh_degree: number, sh_stored: number, origin: number[],
 *   antialiased: boolean, bytes: number}} SceneBegin
 * @typedef {{pane: number, side: 0 | 1, pass: number, number: number, part: "quick" | "exact" | "harmonics",
 *   first: number, count: number, bytes: number}} Blocks
 * @typedef {{pane: number, side: 0 | 1, pass: number, number: number, is_whole: boolean}} SceneEnd
 * @typedef {{pane: number, side: 0 | 1, pass: number, marked: number[]}} MarkedScene
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

  function open(number, since) {
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
      lead: null, // the pane with which it moves
      isActive: false, // keys move its camera
      isUnsaid: false, // the viewer may never have learnt its place
      sides: [newSide(), newSide()], // its scene, and the one that is compared with it
      since, // number of a layout: it and those before it may lack this pane
      isLeaving: false, isEnding: false, // the next picture is the viewer's; and nothing is kept
      isAnswered: false, settling: 0, // after a move
      measuring: 0, // until the difference of two scenes is measured
    };
    splats.onlost = () => {
      canvas.hidden = true;
      lost(splats.reason);
    };
    splats.onrestored = restored;
    listen(pane, 0, splats);
    panes.set(number, pane);
    arrange(pane);
    return pane;
  }

  function listen(pane, side, splats) {
    splats.onfailed = () => failed(splats.reason, false);
    splats.onranged = ({show, low, high}) => {
      const ends = {low: Number(low.toPrecision(DIGITS)), high: Number(high.toPrecision(DIGITS))};
      pane.sides[side].range = {show, ...ends};
      tellRanges(pane);
    };
  }

  function close(pane) {
    clearTimeout(pane.settling);
    clearTimeout(pane.measuring);
    for (const each of followersOf(pane)) settle(detach(each));
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

  /** A viewer knows nothing of this page's scenes: its new ones replace what is drawn. Cameras stay. */
  function restart() {
    placed = 0;
    age += 1;
    for (const pane of panes.values()) {
      pane.isUnsaid ||= pane.placed > (pane.drawing?.placed ?? pane.placed);
      Object.assign(pane, {placed: 0, since: 0});
      for (const side of pane.sides) Object.assign(side, {pass: null, toldRange: ""});
    }
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

  /** @param {{number: number, size: number[], panes: [number, Box][]}} layout  That is shown. */
  function takeLayout(layout) {
    boxes = new Map(layout.panes);
    size = layout.size;
    for (const pane of [...panes.values()]) {
      const box = boxes.get(pane.number);
      if (box) {
        pane.box = box;
        arrange(pane);
        draw(pane);
      } else if (layout.number > pane.since) {
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

  /** @param {HandedScene} message @param {number} [newestLayout]  That has come before, and may not be shown yet. */
  function takeHanded({pane: number, drawing, reason}, newestLayout = 0) {
    try {
      const pane = panes.get(number) ?? open(number, newestLayout);
      pane.reason = reason;
      if (drawing) take(pane, drawing); else leavePane(pane);
      changed();
    } catch (error) {
      failed(`this browser cannot draw: ${error.message}`, false);
    }
  }

  function take(pane, drawing) {
    const {look, second} = drawing;
    Object.assign(pane, {drawing, isLeaving: false});
    placed = Math.max(placed, drawing.placed); // a viewer that knew this page before counts on
    pane.look = {...lookOf(look), second: second && {...second, look: lookOf(second.look)}};
    if (!second) {
      pane.splats.dropSecond();
      pane.sides[1] = newSide();
    } else if (!pane.splats.second) {
      listen(pane, 1, pane.splats.withSecond());
    }
    [look, second?.look].forEach((one, i) => {
      if (one?.paint !== pane.sides[i].paint) Object.assign(pane.sides[i], {paint: one?.paint, toldRange: ""});
    });
    if (drawing.placed >= placed && !pane.moves) pane.isActive = drawing.is_active;
    if (pane.isUnsaid && pane.orbit && !pane.moves) {
      sayPlace(pane, [pane]);
    } else if (drawing.placed >= pane.placed) {
      if (!pane.moves) Object.assign(pane, {orbit: makeOrbit(drawing.place), camera: drawing.camera});
      pane.isAnswered = true;
      if (pane.settling) settleWithin(pane, SETTLED);
    }
    layPhoto(pane);
    draw(pane);
  }

  const lookOf = (look) => ({...look, map: look.map.length ? Float32Array.from(look.map) : undefined});

  const splatsOf = (pane, side) => (side ? pane.splats.second : pane.splats);

  /** @param {SceneBegin} message */
  function takeBegin(message) {
    const pane = panes.get(message.pane);
    if (!pane || !splatsOf(pane, message.side)) return;
    const {version, pass, count, sh_degree, sh_stored, origin, antialiased} = message;
    const splats = splatsOf(pane, message.side), side = pane.sides[message.side];
    Object.assign(side, {pass: message, taken: 0});
    if (message.refines) {
      if (splats.version?.number !== version) side.pass = null;
    } else if (!splats.begin({number: version, pass, count, sh_degree, sh_stored, origin, antialiased})) {
      side.pass = null;
      failed(splats.reason, true);
    }
    changed();
  }

  /** @param {Blocks} message @param {ArrayBuffer[]} parts  Of their bytes. */
  function takeBlocks(message, parts) {
    const pane = panes.get(message.pane), side = pane?.sides[message.side], {count, first, part} = message;
    try {
      if (side?.pass?.pass === message.pass) {
        const splats = splatsOf(pane, message.side);
        const bytes = joined(parts, message.bytes), piece = message.bytes / count;
        for (let i = 0; i < count; ++i) splats.put(first + i, part, bytes.slice(i * piece, (i + 1) * piece));
        side.taken += message.bytes;
        changed();
      }
    } catch (error) {
      side.pass = null;
      failed(`what came of the scene cannot be drawn: ${error.message}`, false);
    }
    send({t: "taken", number: message.number});
  }

  /** @param {SceneEnd} message */
  async function takeEnd({pane: number, side: index, pass: passNumber, number: messageNumber, is_whole}) {
    const pane = panes.get(number), side = pane?.sides[index], pass = side?.pass, own = age;
    if (pass?.pass === passNumber) {
      side.pass = null;
      if (is_whole && (pass.refines || await splatsOf(pane, index).commit())) {
        const {count, total, has_harmonics, form, sh_stored} = pass;
        Object.assign(side, {count, total, form: has_harmonics ? "harmonics" : form, stored: sh_stored});
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
    const image = await createImageBitmap(new Blob(parts, {type: "image/jpeg"})).catch(() => null);
    if (!image) return; // it cannot be decoded: the picture stays without it
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
  function takeMarks({pane: number, side, pass, marked}) {
    const pane = panes.get(number);
    if (!pane) return;
    splatsOf(pane, side)?.mark(pass, marked);
    draw(pane);
  }

  // ---- what is drawn

  /** Draw a pane, and those that move with it. */
  function draw(pane) {
    for (const each of [pane, ...followersOf(pane)]) drawAlone(each);
  }

  async function drawAlone(pane) {
    if (!pane.drawing) return;
    await pane.splats.draw(cameraOf(pane), pane.look);
    const {splats, look} = pane;
    measureSoon(pane);
    const isSeen = Boolean(pane.drawing && splats.version && (!look.second || splats.second?.version));
    if (!isSeen || !pane.canvas.hidden) return;
    pane.canvas.hidden = false;
    layPhoto(pane);
    changed();
  }

  function measureSoon(pane) {
    clearTimeout(pane.measuring);
    if (pane.look.second) pane.measuring = setTimeout(() => measure(pane), MEASURE);
  }

  function measure(pane) {
    if (!pane.drawing || pane.moves) return;
    const square = pane.splats.difference();
    if (square >= 0) send({t: "measured", pane: pane.number, mean_square: Math.min(square, 1)});
  }

  const followersOf = (pane) => [...panes.values()].filter((other) => other.lead === pane);

  function cameraOf({camera, orbit, box, lead}) {
    const [width, height] = sizeOf(box);
    if (!lead) return camera ?? orbit.cameraFor(width, height);
    const [wide, high] = sizeOf(lead.box), {near, far} = orbit.place();
    const isAlike = Math.abs(wide - width) <= SAME_SIZE && Math.abs(high - height) <= SAME_SIZE;
    const seen = isAlike ? lead.orbit.cameraFor(width, height) : lead.orbit.cameraFor(wide, high);
    return {...fitted(seen, width, height), near, far};
  }

  /** The pane whose camera moves with a hand at this place, if any. */
  function paneAt(x, y) {
    const isIn = ([left, top, width, height]) => x >= left && y >= top && x < left + width && y < top + height;
    for (const pane of panes.values()) {
      if (!canMove(pane) || !isIn(pane.box)) continue;
      if (!pane.drawing.covered.some(isIn)) return pane;
    }
    return null;
  }

  const canMove = (pane) => Boolean(pane.drawing?.navigates) && !pane.canvas.hidden;

  /** Whether a drag from a place is for something on the picture: within pixels of it. */
  const isGrip = ({drawing: {grips}}, x, y, reach) => grips.some(([left, top, width, height]) =>
    x >= left - reach && y >= top && x < left + width + reach && y < top + height);

  /** A hand begins to move a pane, and those that move with it. What lies over the pictures belongs to the camera of
   * before: the canvases go over it. */
  function beginMove(pane) {
    if (pane.lead) detach(pane);
    if (!pane.moves) {
      for (const other of panes.values()) {
        const {link} = other.drawing ?? {};
        const isLinked = Number.isInteger(link) && link === pane.drawing.link && !other.canvas.hidden;
        if (isLinked && other !== pane && !other.moves) raise(Object.assign(other, {lead: pane, moves: 1}));
      }
    }
    pane.moves += 1;
    pane.camera = null;
    raise(pane);
  }

  function raise(pane) {
    pane.isAnswered = false;
    clearTimeout(pane.settling);
    pane.settling = 0;
    if (pane.drawing) pane.canvas.style.clipPath = uncovered(pane); // else the viewer has just taken it back
    pane.canvas.classList.add("moving");
  }

  /** It has ended: the viewer learns where. */
  function endMove(pane) {
    pane.moves -= 1;
    if (pane.moves) return;
    const group = [pane, ...followersOf(pane).map(detach)];
    if (pane.drawing) sayPlace(pane, group); else group.forEach(settle);
  }

  /** Have a pane that moved with another one stay where it is. Returns it. */
  function detach(pane) {
    const {near, far} = pane.orbit.place();
    const camera = cameraOf(pane), orbit = makeOrbit({...pane.lead.orbit.place(), near, far});
    return Object.assign(pane, {camera, orbit, lead: null, moves: 0});
  }

  /** Tell the viewer a pane's place, which is that of a whole group. */
  function sayPlace(pane, group) {
    placed += 1;
    for (const each of group) {
      Object.assign(each, {placed, isUnsaid: false});
      settleWithin(each, SETTLE);
    }
    send({t: "place", pane: pane.number, number: placed, place: pane.orbit.place(), at: time()});
    group.forEach(tellRanges);
  }

  /** Keys move this pane's camera from now on. */
  function activate(pane) {
    for (const each of panes.values()) each.isActive = each === pane;
  }

  /** Tell the viewer what the colours of numbers mean, unless it knows. */
  function tellRanges({number, sides, drawing, moves}) {
    sides.forEach((side, i) => {
      const text = JSON.stringify(side.range);
      if (!side.range || !drawing || moves || text === side.toldRange) return;
      side.toldRange = text;
      send({t: "range", pane: number, side: i, ...side.range, at: time()});
    });
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
    takeMarks, takePhoto, draw, paneAt, canMove, isGrip, activate, beginMove, endMove, copyTo,
    /** Whether a version is on its way. */
    get isComing() { return [...panes.values()].some(({sides}) => sides.some(({pass}) => pass && !pass.refines)); },
    get all() { return [...panes.values()]; },
  };
}

const newSide = () => ({
  pass: null, taken: 0, // that comes, and bytes of it that have come
  count: 0, total: 0, form: "", stored: 0, // of what is drawn
  paint: "", range: null, toldRange: "", // of numbers, as measured, and as the viewer knows it
});
const sizeOf = ([, , width, height]) => [Math.max(width, 1), Math.max(height, 1)];

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
function uncovered({canvas, box, drawing: {covered, second}}) {
  const scale = [canvas.clientWidth / box[2], canvas.clientHeight / box[3]];
  let open = [[0, 0, box[2], box[3]]]; // left, top, right, bottom
  const all = [...covered];
  if (second?.line) { // it goes with the picture
    const x = box[0] + Math.round(second.position * box[2]);
    all.push([x - second.line / 2, box[1], second.line, box[3]]);
  }
  for (const [x, y, width, height] of all) {
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

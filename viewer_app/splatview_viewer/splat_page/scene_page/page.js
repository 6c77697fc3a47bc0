// A scene in one file: unpacks it, draws it whenever something changes, and moves the camera.

import {makeSplats} from "./draw.js";
import {makeFlying, makeOrbit} from "./orbit.js";
import {SORTER} from "./sorter.js";
import {makeTouch} from "./touch.js";
import {makeTour} from "./tour.js";
import {unpack} from "./unpack.js";

const MOST_RATIO = 2; // pixels of the picture for a pixel of the page: phones with three see no difference
const WIDEST = 100; // degrees that a tall window's first view shows at most
const BUTTONS = [["left", 1], ["right", 2], ["middle", 4]];
const KEY_NAMES = {ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down", Meta: "super"};
const DARK = [0, 0, 0], LIGHT = [1, 1, 1];
const HINT = matchMedia("(pointer: coarse)").matches
  ? "One finger turns, two move" : "Drag to turn, right drag to move, wheel to come nearer, W A S D to fly";

/** @type {Record<string, HTMLElement>} */
const el = Object.fromEntries([...document.querySelectorAll("[id]")].map((e) => [e.id, e]));
const canvas = /** @type {HTMLCanvasElement} */ (el.canvas);
const scene = JSON.parse(el.scene.textContent);
const texts = document.querySelectorAll("[type='text/plain']");
const splats = makeSplats(canvas, makeSorter);
splats.onfailed = () => fail(splats.reason);
const tour = scene.path ? makeTour(scene.path, scene.version.origin) : null;
const flying = makeFlying();
const backgrounds = [scene.background, DARK, LIGHT].filter((color, i, all) => all.findIndex((e) => `${e}` === `${color}`) === i);
const view = {width: 1, height: 1, scale: 1}; // of the picture, in its pixels; and how many are a pixel of the page
let background = backgrounds[0];
let orbit = makeOrbit(scene.place);
let isMoved = false; // whether the camera is not as it was at first
let tourTime = 0; // seconds on the path
let isTouring = false, isLooping = false; // whether the path is played; and again and again
let lastFrame = 0; // when the camera moved last by itself; 0: it does not
let loaded = 0, drawn = 0; // when the scene had come, in milliseconds, and how often it was drawn

function makeSorter() {
  return new Worker(URL.createObjectURL(new Blob([SORTER], {type: "text/javascript"})));
}

function fail(reason) {
  const advice = "Try a current Chrome, Edge, Firefox or Safari, with graphics acceleration turned on.";
  el.trouble.textContent = `This scene cannot be drawn here: ${reason}. ${advice}`;
  el.trouble.hidden = false;
  el.buttons.hidden = true;
  el.note.textContent = "";
}

// ---- the scene

async function load() {
  if (!("DecompressionStream" in window)) return fail("this browser cannot unpack it");
  if (!splats.begin(scene.version)) return fail(splats.reason);
  const pieces = scene.pieces.map((piece, index) => ({...piece, index}));
  const rough = pieces.filter(({part}) => part === "quick"), finer = pieces.filter(({part}) => part !== "quick");
  for (const [i, piece] of rough.entries()) {
    if (i) el.note.textContent = `${Math.round(100 * i / rough.length)}\u00a0%`;
    await put(piece);
  }
  await splats.commit();
  loaded ||= performance.now();
  await draw();
  for (const piece of finer) await put(piece);
  if (finer.length) await draw();
  el.note.textContent = splats.reason || (isMoved ? "" : HINT);
}

async function put(piece) {
  const blocks = await unpack(texts[piece.index].textContent, piece);
  blocks.forEach((block, i) => splats.put(piece.first + i, piece.part, block));
}

async function draw() {
  await splats.draw(orbit.cameraFor(view.width, view.height), {background});
  drawn += 1;
  el.poster?.remove();
}

// ---- the camera

/** The first place; in a window that is taller than wide it shows as much to both sides as it would above and below. */
function firstPlace() {
  const {place} = scene, ratio = view.height / view.width;
  if (place.model !== "pinhole" || ratio <= 1) return place;
  const wide = Math.atan(Math.tan(place.fov * Math.PI / 360) * ratio) * 360 / Math.PI;
  return {...place, fov: Math.max(place.fov, Math.min(wide, WIDEST))};
}

function reset() {
  stopTour();
  orbit = makeOrbit(firstPlace());
  isMoved = false;
  draw();
}

/** Follow what the user does to the picture. @param {object} event  As `orbit.handle` takes it. */
function handle(event) {
  if (["press", "wheel", "pinch"].includes(event.t)) takeOver();
  canvas.classList.toggle("held", event.t === "press" || (event.t !== "release" && orbit.isDragging));
  if (orbit.handle(event, {x: 0, y: 0, width: view.width, height: view.height}) && event.t !== "release") draw();
}

function takeOver() {
  stopTour();
  isMoved = true;
  if (el.note.textContent === HINT) el.note.textContent = "";
}

function letGo() {
  orbit.letGo();
  flying.letGo();
  touch.letGo();
  held.clear();
}

// ---- what moves by itself: only then frame follows frame

function startMoving() {
  if (lastFrame) return;
  lastFrame = performance.now();
  requestAnimationFrame(move);
}

function move(now) {
  const seconds = Math.max(now - lastFrame, 0) / 1000;
  const motion = flying.step(now / 1000);
  if (motion) orbit.fly(motion);
  if (isTouring) tourOn(seconds);
  if (!motion && !isTouring) {
    lastFrame = 0;
    return;
  }
  lastFrame = now;
  draw();
  requestAnimationFrame(move);
}

function tourOn(seconds) {
  const isOver = tourTime + seconds >= tour.seconds;
  goTo(isOver && isLooping ? (tourTime + seconds) % tour.seconds : Math.min(tourTime + seconds, tour.seconds));
  if (isOver && !isLooping) stopTour();
}

function goTo(seconds) {
  tourTime = seconds;
  el.time.value = String(seconds);
  el.time.setAttribute("aria-valuetext", `${seconds.toFixed(1)} of ${tour.seconds.toFixed(1)} seconds`);
  orbit = makeOrbit(tour.placeAt(seconds, scene.place));
}

function stopTour() {
  isTouring = false;
  el.play.setAttribute("aria-pressed", "false");
}

/** Play the path from where it is, or from its beginning where that is its end; or pause. */
function play() {
  if (!tour) return;
  if (isTouring) {
    stopTour();
    return;
  }
  takeOver();
  goTo(tourTime < tour.seconds ? tourTime : 0);
  isTouring = true;
  el.play.setAttribute("aria-pressed", "true");
  startMoving();
}

function seek() {
  takeOver();
  goTo(Number(el.time.value));
  draw();
}

function toggleLoop() {
  isLooping = !isLooping;
  el.loop.setAttribute("aria-pressed", String(isLooping));
}

// ---- the window

function measure() {
  const rect = canvas.getBoundingClientRect(), scale = Math.min(devicePixelRatio, MOST_RATIO);
  const width = Math.max(Math.round(rect.width * scale), 1), height = Math.max(Math.round(rect.height * scale), 1);
  if (width === view.width && height === view.height && scale === view.scale) return;
  Object.assign(view, {width, height, scale});
  if (!isMoved) orbit = makeOrbit(firstPlace());
  if (loaded) draw();
}

/** A window that goes to another monitor has another ratio of pixels, which is not a resize everywhere. */
function watchRatio() {
  matchMedia(`(resolution: ${devicePixelRatio}dppx)`).addEventListener("change", () => {
    measure();
    watchRatio();
  }, {once: true});
}

function useBackground(color) {
  background = color;
  const [red, green, blue] = color;
  document.body.classList.toggle("light", 0.3 * red + 0.6 * green + 0.1 * blue > 0.5);
  document.body.style.background = `rgb(${color.map((part) => Math.round(255 * part)).join(" ")})`;
  if (loaded) draw();
}

function nextBackground() {
  useBackground(backgrounds[(backgrounds.indexOf(background) + 1) % backgrounds.length]);
}

async function fillScreen() {
  if (document.fullscreenElement) await document.exitFullscreen();
  else await document.documentElement.requestFullscreen().catch(() => {}); // refused inside a frame
}

// ---- mouse and fingers

const held = new Map(); // buttons that are down
const pointer = {x: 0, y: 0};
const mods = (e) => (e.shiftKey ? 1 : 0) | (e.ctrlKey ? 2 : 0) | (e.altKey ? 4 : 0) | (e.metaKey ? 8 : 0);

function toFramebuffer(x, y) {
  const rect = canvas.getBoundingClientRect();
  return {x: (x - rect.left) * view.width / rect.width, y: (y - rect.top) * view.height / rect.height};
}

const touch = makeTouch({
  view, pointer, held, toFramebuffer, mods, ring: document.createElement("span"), time: () => performance.now(),
  send: handle, act: handle, pace: (action) => action(), flushPaced: () => {}, // as often as the browser shows is drawn
});

function onPointer(e) {
  if (e.type === "pointerdown") {
    canvas.focus({preventScroll: true});
    try { canvas.setPointerCapture(e.pointerId); } catch { /* already up again */ }
  }
  if (e.pointerType === "touch") touch.take(e);
  else onMouse(e);
}

function onMouse(e) {
  const where = toFramebuffer(e.clientX, e.clientY);
  const buttons = e.type === "lostpointercapture" ? 0 : e.buttons;
  for (const [button, bit] of BUTTONS) {
    const isDown = (buttons & bit) !== 0;
    if (isDown === held.has(button) || (isDown && e.type !== "pointerdown" && e.button < 0)) continue;
    if (isDown) held.set(button, true);
    else held.delete(button);
    handle({t: isDown ? "press" : "release", ...where, button, mods: mods(e)});
  }
  if (e.type === "pointermove") handle({t: "move", ...where, mods: mods(e)});
}

function onWheel(e) {
  e.preventDefault();
  const where = toFramebuffer(e.clientX, e.clientY), unit = [1 / 100, 1 / 3, 1][e.deltaMode]; // pixels, lines, pages
  if (e.ctrlKey) { // how browsers report two fingers on a trackpad
    const factor = Math.exp(-Math.min(Math.max(e.deltaY * unit, -0.2), 0.2));
    handle({t: "pinch", ...where, factor, dx: 0, dy: 0});
    return;
  }
  const isSideways = e.shiftKey && !e.deltaY; // Shift turns the wheel sideways
  const [dx, dy] = isSideways ? [0, -e.deltaX * unit] : [e.deltaX * unit, -e.deltaY * unit];
  handle({t: "wheel", ...where, dx, dy, mods: mods(e)});
}

// ---- keys

const ACTIONS = {r: reset, f: reset, Home: reset, p: play, l: toggleLoop, b: nextBackground, "?": showHelp};

function showHelp() {
  letGo();
  el.help.showModal();
}

/** The name of a key: what the layout says, else the letter that stands there on an English keyboard. */
function keyName(e) {
  if (e.key in KEY_NAMES) return KEY_NAMES[e.key];
  const place = /^Key(\w)$/.exec(e.code);
  if (/^[^a-z]$/i.test(e.key) && place) return place[1].toLowerCase();
  return e.key.length === 1 ? e.key.toLowerCase() : e.key;
}

function onKey(e) {
  const name = keyName(e), isPressed = e.type === "keydown";
  if (el.help.open || (e.target === el.time && /^(Home|End|Page|Arrow)/.test(e.key))) return; // the time line takes them
  const moves = flying.key(["Shift", "Alt"].includes(name) ? name.toLowerCase() : name, isPressed, mods(e));
  if (moves && isPressed) {
    takeOver();
    startMoving();
    e.preventDefault();
  } else if (isPressed && !e.repeat && !e.ctrlKey && !e.metaKey && !e.altKey && Object.hasOwn(ACTIONS, name)) {
    ACTIONS[name]();
    e.preventDefault();
  }
}

// ---- everything together

const on = (target, names, handler, options) => {
  for (const name of names.split(" ")) target.addEventListener(name, handler, options);
};
on(canvas, "pointerdown pointermove pointerup pointercancel lostpointercapture", onPointer);
on(canvas, "mousedown contextmenu auxclick", (e) => e.preventDefault()); // no selection, no menu
on(canvas, "wheel", onWheel, {passive: false});
on(window, "gesturestart gesturechange", (e) => e.preventDefault()); // Safari's zoom
on(window, "keydown keyup", onKey);
on(window, "blur pagehide", letGo);
on(el.play, "click", play);
on(el.reset, "click", reset);
on(el.background, "click", nextBackground);
on(el.full, "click", fillScreen);
on(el.loop, "click", toggleLoop);
on(el.time, "input", seek);
on(el.time, "pointerup", () => canvas.focus({preventScroll: true})); // keys fly again
on(el.keys, "click", showHelp);
on(el.help, "click", () => el.help.close());
on(el.foot, "click", (e) => { if (e.detail && !el.help.open) canvas.focus({preventScroll: true}); }); // 0: by a key, which goes on there
el.tour.hidden = !tour;
if (tour) el.time.max = String(tour.seconds);
el.full.hidden = !document.fullscreenEnabled;
new ResizeObserver(measure).observe(canvas);
watchRatio();
measure();
useBackground(background);
splats.onrestored = load; // all that the GPU had is gone
load();

/** What the page does just now, for tests and diagnosis. */
const state = () => ({loaded, drawn, touring: isTouring ? tourTime : -1, ...view, camera: orbit.cameraFor(view.width, view.height)});
Object.defineProperty(window, "splatview", {value: Object.freeze({state})});

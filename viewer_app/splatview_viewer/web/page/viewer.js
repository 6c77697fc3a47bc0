// The page of a splatview viewer: its pictures and its interface, what the user does back to it.
// The messages are those of events.py and web/messages.py. No dependencies, no build step.

import {makeFiles, save} from "./files.js";
import {makeLayers} from "./layers.js";
import {framed, store, takeToken} from "./session.js";
import {makeTouch} from "./touch.js";

/**
 * @typedef {import("./layers.js").Picture} Picture  Its image follows in binary messages.
 * @typedef {import("./layers.js").Interface} Interface  The next binary message is its files.
 * @typedef {{t: "welcome", protocol: number, version: string, viewer: string, key: string, most: number,
 *     command: string}
 *   | {t: "caption", title: string, trouble: string, typing: boolean, light: boolean, keys: string,
 *     corner: {x: number, y: number, width: number, height: number} | null}
 *   | {t: "clipboard", text: string}
 *   | {t: "offer", name: string, key: string, size: number}
 *   | {t: "ask", favour: string}
 *   | ({t: "layout"} & import("./layers.js").Layout) | ({t: "interface"} & Interface)
 *   | ({t: "picture"} & Picture) | ({t: "handedscene"} & import("./splats/panes.js").HandedScene)
 *   | ({t: "scenebegin"} & import("./splats/panes.js").SceneBegin)
 *   | ({t: "sceneend"} & import("./splats/panes.js").SceneEnd)
 *   | ({t: "markedscene"} & import("./splats/panes.js").MarkedScene)
 *   | ({t: "blocks"} & import("./splats/panes.js").Blocks)
 *   | ({t: "photo"} & import("./splats/panes.js").PanePhoto)} Answer  What the viewer says.
 */

const PROTOCOL = 6;
const MAX_SIDE = 4096, MAX_PIXELS = 3840 * 2160; // of the picture: a phone's or a wall's every pixel is too many
const MAX_TEXT = 10000; // characters of one message
const RETRY_FIRST = 250, RETRY_LAST = 3000, RETRY_GROWTH = 1.6; // ms
const OPEN_WITHIN = 10000; // ms from the first try to the viewer's welcome
const FONTS_AFTER = 3000; // ms after the first picture, which they would delay
const STOPPED_AFTER = 1000; // ms without a viewer after which the page says that it stopped
const BLOCKED = "The viewer answers, but something in between lets no WebSocket through. A reverse proxy has to pass it on"
  + " (nginx: proxy_http_version 1.1 and the headers Upgrade and Connection); around a filter, ssh -L leads to the viewer.";
const MODS = ["shift", "ctrl", "alt", "super"]; // of a bit mask
const MOST_NOTCHES = 20; // of one turn of the wheel
const MAC = /Mac|iPhone|iPad/.test(navigator.platform);

/** @type {Record<string, any>} */
const el = Object.fromEntries([...document.querySelectorAll("[id]")].map((e) => [e.id, e]));
const canvas = /** @type {HTMLCanvasElement} */ (el.canvas);
const body = document.body.classList;
el.unloaded.hidden = true;

// ---- the connection: opened again and again until the viewer refuses for good

const link = {
  socket: null, open: false, since: 0, opening: 0, delay: RETRY_FIRST, timer: 0, tries: 0,
  next: 0, lost: 0, lostAt: "", command: "", refusal: "", ended: false, outdated: false,
  undrawn: "", welcome: null,
  caption: {title: "", trouble: "", typing: false, light: false, corner: null, keys: "picture"},
};

const token = takeToken();
/** Headers of a request that needs the token. */
const credentials = token ? {"X-Splatview-Token": token} : {};

/**
 * The tab's own id, by which the viewer knows it again after a reload. It lies in the session's storage only while
 * no page shows: a duplicated tab gets a copy of the storage, and must not get the id.
 */
const id = store.get("id") || Array.from(crypto.getRandomValues(new Uint32Array(3)), (n) => n.toString(36)).join("-");
store.set("id", "");
for (const name of ["pagehide", "freeze"]) addEventListener(name, () => store.set("id", id));
for (const name of ["pageshow", "resume"]) addEventListener(name, () => store.set("id", ""));

/** `path` beside this page, with the rest of the page's query; a token goes in headers, which no proxy logs. */
function address(path, scheme) {
  const url = new URL(path + location.search, location.href.split(/[?#]/)[0]);
  url.searchParams.delete("token");
  return url.href.replace(/^http/, scheme);
}

function connect() {
  clearTimeout(link.timer);
  if (link.socket || link.ended) return;
  const socket = link.socket = new WebSocket(address("ws", "ws"), token ? ["splatview", `token.${token}`] : []);
  socket.binaryType = "arraybuffer";
  link.opening = setTimeout(() => socket.close(), OPEN_WITHIN); // something in between may keep it without an answer
  socket.onopen = () => {
    measure();
    link.open = true;
    link.since = performance.now();
    layers.restart();
    Object.assign(arriving, {update: null, large: null, parts: []});
    send({t: "hello", id, ...view, visible: !document.hidden});
  };
  socket.onmessage = ({data}) => {
    if (typeof data === "string") takeAnswer(JSON.parse(data)); else takeData(data);
  };
  socket.onclose = (event) => disconnected(event);
}

async function disconnected(event) {
  const {open: opened, welcome: welcomed} = link;
  letGo();
  if (welcomed) Object.assign(link, {lost: performance.now(), lostAt: new Date().toTimeString().slice(0, 8)});
  clearTimeout(link.opening);
  Object.assign(link, {open: false, welcome: null, tries: link.tries + 1});
  if (opened && performance.now() - link.since > RETRY_LAST) link.delay = RETRY_FIRST;
  if (event.reason) console.info(`The viewer closed the connection: ${event.reason}`);
  if (event.code === 1013) Object.assign(link, {refusal: event.reason, delay: RETRY_LAST}); // try again later
  else if (!link.ended) link.refusal = "";
  if (!welcomed && !event.reason && !link.ended) {
    const {refused, words} = await diagnose();
    if (refused) end(words);
    else if (link.tries > 1) link.refusal = words; // a viewer that only just began may be no more than late
  }
  link.socket = null;
  showState();
  if (link.ended) return;
  link.timer = setTimeout(connect, link.delay);
  link.next = performance.now() + link.delay;
  link.delay = Math.min(link.delay * RETRY_GROWTH, RETRY_LAST);
}

/**
 * Why no WebSocket opens, which browsers tell no page: a request with the same Origin, Host and token is answered in
 * words. `refused`: the viewer itself does not let this page in, so there is no use in trying again. `words` are ""
 * where nothing answers.
 */
async function diagnose() {
  let answer, text;
  try {
    answer = await fetch(address("check", "http"), {
      method: "POST", cache: "no-store", headers: credentials, redirect: "manual", signal: AbortSignal.timeout(OPEN_WITHIN),
    });
    text = (await answer.text()).trim().slice(0, 600);
  } catch {
    return {refused: false, words: ""};
  }
  if (answer.type === "opaqueredirect") {
    return {refused: false, words: "Something in front of the viewer sends this page elsewhere, to log in perhaps: reload it."};
  }
  if (answer.headers.get("X-Splatview") === "viewer") {
    return answer.ok ? {refused: false, words: BLOCKED} : {refused: true, words: text};
  }
  const plain = (answer.headers.get("Content-Type") || "").startsWith("text/plain"); // the viewer's, without its header
  const words = `Something in front of the viewer answers in its place: ${answer.status} ${answer.statusText}`.trim();
  return {refused: false, words: `${words}. ${plain ? text : ""}`.trim()};
}

function end(reason) {
  link.refusal = reason;
  link.ended = true;
}

function retryNow() {
  if (!link.socket && !link.ended) connect();
}

/**
 * Send what the user did, unless this browser does it by itself.
 * @param {object} message  One of the client messages. @returns {boolean}  Whether it does.
 */
function send(message) {
  const isOurs = Boolean(drawing) && drawing.take(message);
  if (!isOurs) pass(message);
  return isOurs;
}

/** @param {object} message  For the viewer; lost when there is no connection. */
function pass(message) {
  if (!link.open || link.socket.readyState !== WebSocket.OPEN) return;
  if ("mods" in message) message = {...message, mods: MODS.filter((_, bit) => message.mods >> bit & 1)};
  link.socket.send(JSON.stringify(message));
}

/** Send what the user did, after the move before it. Returns what `send` does. */
function act(message) {
  flushPaced();
  return send(message);
}

/** @param {Answer} answer */
function takeAnswer(answer) {
  if (["interface", "picture", "blocks", "photo"].includes(answer.t)) return announce(answer);
  if (answer.t in takesScene) return drawing && takesScene[answer.t](answer);
  if (answer.t === "layout") return layers.takeLayout(answer);
  if (answer.t === "welcome" && answer.protocol !== PROTOCOL) {
    link.outdated = true;
    end("This page is older than the viewer: reload it.");
    link.socket.close();
    if (store.get("reloaded") !== answer.viewer) { // once: a cache in between may hold on to the old page
      store.set("reloaded", answer.viewer);
      location.reload();
    }
  } else if (answer.t === "welcome") {
    clearTimeout(link.opening);
    Object.assign(link, {welcome: answer, command: answer.command, refusal: "", tries: 0});
    // Until it says otherwise.
    takeCaption({...link.caption, title: "", trouble: "", typing: false, corner: null, keys: "picture"});
    tellWhoDraws();
  } else if (answer.t === "caption") {
    takeCaption(answer);
  } else if (answer.t === "clipboard") {
    copy(answer.text);
  } else if (answer.t === "offer") {
    files.fetchOffer(answer);
  } else if (answer.t === "ask" && answer.favour.startsWith("draw_")) {
    if (drawing) drawing.choose(answer.favour.slice("draw_".length));
  } else if (answer.t === "ask") {
    favours.take(answer.favour);
  }
  return showState();
}

function takeCaption(caption) {
  link.caption = caption;
  document.title = caption.title || "splatview";
  body.toggle("light", caption.light);
  setTyping(caption.typing);
  if (drawing) drawing.takeCorner(caption.corner);
}

/** Say over the picture what there is to say about it and the connection. */
function showState() {
  const gone = !link.welcome && link.tries > 0, now = performance.now();
  const stopped = gone && !link.ended && !link.refusal && pictures.frames > 0 && now - link.lost > STOPPED_AFTER;
  const words = link.ended ? link.refusal
    : gone ? (link.refusal ? `${link.refusal} Trying again…` : pictures.frames ? "" : "Connecting…")
    : pictures.frames ? link.caption.trouble : "Connecting…";
  body.toggle("gone", gone);
  body.toggle("refused", link.ended);
  body.toggle("trouble", !gone && !link.ended && !!words);
  el.notice.hidden = !words;
  if (el.words.textContent !== words) el.words.textContent = words;
  el.again.hidden = !link.ended;
  el.again.textContent = link.outdated ? "Reload" : "Try again";
  showStopped(stopped);
}

function showStopped(stopped) {
  const was = !el.stopped.hidden;
  el.stopped.hidden = !stopped;
  if (stopped) {
    const left = Math.ceil((link.next - performance.now()) / 1000);
    const next = link.socket || left <= 0 ? "trying…" : `next try in ${left} s`;
    if (el.next.textContent !== next) el.next.textContent = next;
  }
  if (stopped && !was) {
    el.since.textContent = `Nothing answers at this address since ${link.lostAt}.`;
    el.command.textContent = link.command;
    if (document.hasFocus()) el.retry.focus({preventScroll: true});
  } else if (was && !stopped && (el.stopped.contains(document.activeElement) || document.activeElement === document.body)) {
    focusViewer();
  }
}

async function keepPicture() {
  const picture = await layers.picture();
  if (picture) save(picture, `splatview ${link.lostAt.replaceAll(":", ".")}.png`);
}

// ---- what is shown

const pictures = {frames: 0, shown: null, drawn: [], latencies: [], at: 0};
const layers = makeLayers({
  scene: el.scene, canvas, shown,
  ack: (layer, number, took, at) => send({t: "ack", layer, number, took, ...seen(at)}),
  lost: () => send({t: "lost"}),
  arranged: (layout) => drawing && drawing.takeLayout(layout),
  between: (context) => drawing && drawing.panes.copyTo(context),
});

/** What draws Gaussians in this browser; null until it is loaded. */
let drawing = null;
const takesScene = {
  handedscene: (answer) => drawing.takeHanded(answer, layers.newestLayout()),
  scenebegin: (answer) => drawing.panes.takeBegin(answer),
  sceneend: (answer) => drawing.panes.takeEnd(answer),
  markedscene: (answer) => drawing.panes.takeMarks(answer),
};

/** What is on its way: an update of the interface may come between the parts of a picture or of blocks. */
const arriving = {update: null, updateCame: 0, large: null, largeCame: 0, parts: [], bytes: 0};

/** @param {Answer} answer  Of which the data follow. */
function announce(answer) {
  const now = performance.now();
  if (answer.t === "interface") {
    Object.assign(arriving, {update: answer, updateCame: now});
    if (!answer.sizes.length) takeData(new ArrayBuffer(0)); // a layout alone
  } else {
    Object.assign(arriving, {large: answer, largeCame: now, parts: [], bytes: 0});
  }
}

/** @param {ArrayBuffer} data */
function takeData(data) {
  const now = performance.now(), {update, large} = arriving;
  if (update) {
    arriving.update = null;
    layers.takeInterface(update, data, now - arriving.updateCame);
  } else if (large) {
    arriving.parts.push(data);
    arriving.bytes += data.byteLength;
    if (arriving.bytes < large.bytes) return;
    const {parts, largeCame} = arriving;
    Object.assign(arriving, {large: null, parts: []});
    if (large.t === "picture") takePicture(large, parts, now - largeCame);
    else if (drawing && large.t === "photo") drawing.panes.takePhoto(large, parts);
    else if (drawing) drawing.panes.takeBlocks(large, parts);
  }
}

/** @param {Picture} picture @param {ArrayBuffer[]} parts @param {number} took */
function takePicture(picture, parts, took) {
  if (drawing) drawing.noteRate(picture.bytes, took);
  layers.takePicture(picture, parts, took);
}

/** Note an event that an update tells of as seen; what the viewer is told of that. */
function seen(at) {
  if (at <= pictures.at) return {}; // a stream's pictures may name the same event again
  pictures.at = at;
  const now = performance.now(), latency = Math.max(now - at, 0);
  pictures.latencies.push({now, ms: latency});
  if (drawing) drawing.noteLatency(latency);
  return {latency};
}

/** Have the fonts of what the page may have to say when no viewer is there any more. */
function loadFonts() {
  for (const font of ["13px Roboto", "bold 13px Roboto", "13px Inconsolata"]) document.fonts.load(font).catch(() => {});
}

/** @param {Picture | null} picture  That is shown; null: an interface is. */
function shown(picture) {
  pictures.frames += 1;
  if (picture) {
    pictures.drawn.push(performance.now());
    pictures.shown = picture;
  }
  if (drawing && picture) drawing.panes.pictureShown();
  else if (drawing) drawing.panes.interfaceShown();
  if (!body.contains("empty")) return;
  body.remove("empty");
  setTimeout(loadFonts, FONTS_AFTER);
  showState();
}

// ---- the size: device pixels, as exact as the browser tells them, within what can be sent

const view = {width: 0, height: 0, scale: 1}; // what the viewer knows: framebuffer pixels, and those of a CSS pixel
let deviceBox = null;

function measure() {
  const rect = canvas.getBoundingClientRect();
  let width = rect.width * devicePixelRatio, height = rect.height * devicePixelRatio;
  // The observer's box has no rounding, but belongs to an older ratio at times, and knows nothing of an emulated one.
  if (deviceBox && Math.max(Math.abs(deviceBox.inlineSize - width), Math.abs(deviceBox.blockSize - height)) < 2) {
    [width, height] = [deviceBox.inlineSize, deviceBox.blockSize];
  }
  if (width < 1 || height < 1) return; // a frame that is not laid out
  const fit = Math.min(1, MAX_SIDE / width, MAX_SIDE / height, Math.sqrt(MAX_PIXELS / (width * height)));
  const now = {
    width: Math.max(16, Math.round(width * fit)), height: Math.max(16, Math.round(height * fit)),
    scale: Math.min(Math.max(devicePixelRatio * fit, 0.25), 8),
  };
  if (now.width === view.width && now.height === view.height && now.scale === view.scale) return;
  Object.assign(view, now);
  sendSize();
}

/** Tell the viewer the size, and whether the page fills the monitor. */
function sendSize() {
  if (view.width) act({t: "resize", ...view, full: !!document.fullscreenElement});
}

function watchSize() {
  const observer = new ResizeObserver(([entry]) => {
    deviceBox = entry.devicePixelContentBoxSize ? entry.devicePixelContentBoxSize[0] : null;
    measure();
  });
  observer.observe(canvas);
  try {
    observer.observe(canvas, {box: "device-pixel-content-box"}); // replaces the line above where it is known
  } catch { /* Safari: the ratio will do */ }
}

// ---- pointers

const BUTTONS = [["left", 1], ["right", 2], ["middle", 4]];
const held = new Map(); // buttons that the viewer knows to be down
const pointer = {x: 0, y: 0};
const paced = {action: null, frame: 0, last: null};

/** Now, or when an event happened, which is a little earlier. */
const time = (event) => Math.min(performance.now(), (event && event.timeStamp) || Infinity);

const mods = (e) => {
  const graph = e.getModifierState && e.getModifierState("AltGraph"); // Windows reports it as Ctrl and Alt
  const ctrl = (e.ctrlKey && !graph) || (MAC && e.metaKey);
  return (e.shiftKey ? 1 : 0) | (ctrl ? 2 : 0) | (e.altKey && !graph ? 4 : 0) | (e.metaKey && !MAC ? 8 : 0);
};

/** Where a point of the window lies in the viewer's framebuffer. */
function toFramebuffer(x, y) {
  const rect = canvas.getBoundingClientRect();
  return {x: (x - rect.left) * view.width / rect.width, y: (y - rect.top) * view.height / rect.height};
}

/** Do `action` at once if none was done in this frame, else in the next one, where the newest replaces the others. */
function pace(action) {
  paced.action = action;
  if (!paced.frame) nextPaced();
}

function nextPaced() {
  paced.frame = 0;
  if (!paced.action) return;
  if (!link.socket || link.socket.bufferedAmount < 16384) flushPaced(); // else the network is behind: the newest later
  paced.frame = requestAnimationFrame(nextPaced);
}

function flushPaced() {
  const action = paced.action;
  paced.action = null;
  if (action) action();
}

function onMouse(e) {
  Object.assign(pointer, toFramebuffer(e.clientX, e.clientY));
  const at = time(e), where = {...pointer};
  const buttons = e.type === "lostpointercapture" ? 0 : e.buttons;
  const mayPress = e.type === "pointerdown" || (e.type === "pointermove" && e.button >= 0); // a second button: a move
  let changed = false;
  for (const [button, bit] of BUTTONS) {
    const down = (buttons & bit) !== 0;
    if (down === held.has(button) || (down && !mayPress)) continue;
    changed = true;
    if (down) held.set(button, true); else held.delete(button);
    act({t: down ? "press" : "release", ...where, button, mods: mods(e), at});
  }
  if (!changed && e.type === "pointermove") moveTo(where, mods(e), at);
}

/** A mouse's moves as they happen; "pointermove" comes only with the next frame. Only where the page is trusted. */
function onRaw(e) {
  if (e.pointerType !== "touch") moveTo(Object.assign(pointer, toFramebuffer(e.clientX, e.clientY)), mods(e), time(e));
}

function moveTo({x, y}, modifiers, at) {
  const {last} = paced;
  if (last && last.x === x && last.y === y && last.modifiers === modifiers) return; // the same move, once more
  paced.last = {x, y, modifiers};
  pace(() => send({t: "move", x, y, mods: modifiers, at}));
}

function onPointer(e) {
  if (e.type === "pointerdown") {
    focusViewer();
    try { canvas.setPointerCapture(e.pointerId); } catch { /* already up again */ }
  }
  if (e.pointerType === "touch") touch.take(e); else onMouse(e);
}

function onWheel(e) {
  if (isOwn(e.target) && !e.ctrlKey) return;
  e.preventDefault(); // with Ctrl the browser would zoom the page
  const unit = [1 / 100, 1 / 3, 1][e.deltaMode]; // pixels, lines, pages of a notch
  const where = toFramebuffer(e.clientX, e.clientY), at = time(e);
  if (e.ctrlKey) { // how browsers report two fingers on a trackpad
    const factor = Math.exp(-Math.min(Math.max(e.deltaY * unit, -0.2), 0.2));
    act({t: "pinch", ...where, factor, dx: 0, dy: 0, at});
    return;
  }
  const sideways = e.shiftKey && !e.deltaY; // Shift turns the wheel sideways, which is the viewer's to decide
  const [dx, dy] = sideways ? [0, -e.deltaX * unit] : [e.deltaX * unit, -e.deltaY * unit];
  const bounded = (notches) => Math.min(Math.max(notches, -MOST_NOTCHES), MOST_NOTCHES);
  act({t: "wheel", ...where, dx: bounded(dx), dy: bounded(dy), mods: mods(e), at});
}

/** Let go of everything that is down: its end will not be seen here. */
function letGo() {
  for (const button of held.keys()) act({t: "release", ...pointer, button, mods: 0, at: time()});
  held.clear();
  touch.letGo();
  paced.action = null;
  letGoKeys();
}

// ---- keys and text

const KEY_NAMES = new Map(Object.entries({
  Tab: "tab", ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down", PageUp: "page_up",
  PageDown: "page_down", Home: "home", End: "end", Insert: "insert", Delete: "delete", Backspace: "backspace",
  " ": "space", Enter: "enter", Escape: "escape", "-": "minus", "=": "equal", ",": "comma", ".": "period",
  "/": "slash", "[": "left_bracket", "]": "right_bracket", ContextMenu: "menu", Shift: "shift", Control: "ctrl", Alt: "alt", Meta: MAC ? "ctrl" : "super",
}));
const CODE_NAMES = {Minus: "minus", Equal: "equal", Comma: "comma", Period: "period", Slash: "slash",
                    BracketLeft: "left_bracket", BracketRight: "right_bracket"};
const PUNCTUATION = new Set(["minus", "equal", "comma", "period", "slash"]);
const BROWSER_KEYS = new Set(["f5", "f11", "f12"]);
const MOVING = new Set([..."wasdqezc", "left", "right", "up", "down"]); // with Alt they move a scene's camera slowly
const keys = new Map(); // names of the keys that are down, by their place: a modifier may change what a key means

/** The viewer's name of a key: what the layout says, else what stands there on an English keyboard; "" for others. */
function keyName(e) {
  const named = KEY_NAMES.get(e.key);
  if (named) return named;
  if (/^([a-z0-9]|F[1-9]|F1[0-2])$/i.test(e.key)) return e.key.toLowerCase();
  const place = /^(?:Key|Digit)(\w)$/.exec(e.code);
  return place ? place[1].toLowerCase() : CODE_NAMES[e.code] || "";
}

/** Whether a key is left to the browser: its own shortcuts, but for those of text fields. Ctrl+V comes as a paste. */
function isForBrowser(e, name) {
  const held = mods(e);
  if (BROWSER_KEYS.has(name) || (name === "insert" && held & 1)) return true;
  if (held & 2) return PUNCTUATION.has(name) || (name.length === 1 && !(held & 1 ? "sz" : "ackosxyz").includes(name));
  if (held & 4) return !MAC && name !== "alt" && name !== "shift" && !MOVING.has(name);
  return (held & 8) !== 0 && name !== "super";
}

/** The characters that a key types by itself. */
function typedBy(e) {
  const graph = e.getModifierState("AltGraph") || (MAC && e.altKey);
  const plain = !e.metaKey && (graph || !(e.ctrlKey || e.altKey));
  return plain && [...e.key].length === 1 ? e.key : "";
}

const isOwn = (target) =>
  [el.stopped, el.notice, el.copybox, el.sending, el.drawcorner].some((own) => own.contains(target));

function onKeyDown(e) {
  if (isOwn(e.target)) { // the page's own buttons
    if (e.key === "Escape") closeCopybox();
    return;
  }
  if (e.isComposing || e.keyCode === 229 || e.key === "Dead") return; // the text field says what becomes of it
  const name = keyName(e), text = typedBy(e);
  if (isForBrowser(e, name)) return;
  let isOurs = false;
  if (name) {
    keys.set(e.code || e.key, name);
    isOurs = sendKey(name, true, e);
  }
  if (text && !isOurs) act({t: "text", text, at: time(e)});
  if (name || text) e.preventDefault();
}

function onKeyUp(e) {
  if (MAC && e.key === "Meta") return letGoKeys(); // macOS tells of no key that is let go while Cmd is down
  const place = e.code || e.key, name = keys.get(place);
  if (!name) return;
  keys.delete(place);
  sendKey(name, false, e);
  e.preventDefault();
}

function letGoKeys() {
  for (const name of keys.values()) sendKey(name, false);
  keys.clear();
}

/** @param {string} name @param {boolean} pressed @param {KeyboardEvent} [e]  Without one no modifier is held. */
function sendKey(name, pressed, e) {
  return act({t: "key", name, pressed, mods: e ? mods(e) : 0, repeat: !!e && pressed && e.repeat, at: time(e)});
}

function tapKey(name) {
  sendKey(name, true);
  sendKey(name, false);
}

function sendText(text) {
  const whole = text.slice(0, MAX_TEXT).replace(/\p{Cs}/gu, ""); // halves of characters are no text
  if (whole) act({t: "text", text: whole, at: time()});
  if (text.length > MAX_TEXT) toast(`Only the first ${MAX_TEXT} characters were taken`);
}

// Input methods and phones write into a hidden text field. It is never empty, so that deleting shows; what changed in
// it goes on as deletions and text at once, so that what is composed is seen where it will stand.
const PADDING = "\u200b".repeat(16);
let written = PADDING;

function resetField() {
  written = el.field.value = PADDING;
  el.field.setSelectionRange(PADDING.length, PADDING.length);
}

function onFieldInput(e) {
  const now = [...el.field.value], before = [...written];
  let same = 0;
  while (same < now.length && same < before.length && now[same] === before[same]) same += 1;
  for (let i = same; i < before.length; i += 1) tapKey("backspace");
  const [text, ...lines] = now.slice(same).join("").replace(/\u200b/g, "").split("\n");
  sendText(text);
  if (lines.length) tapKey("enter");
  written = el.field.value;
  if (!e.isComposing || e.type === "compositionend") resetField();
}

/** Where the keyboard goes: to the text field while the viewer has one open (phones show their keyboard then). */
function focusViewer() {
  (link.caption.typing ? el.field : canvas).focus({preventScroll: true});
}

function setTyping(on) {
  body.toggle("typing", on);
  if (on === (document.activeElement === el.field)) return;
  if (on) { // an input method opens its window there
    el.field.style.left = `${Math.max(0, pointer.x / view.scale)}px`;
    el.field.style.top = `${Math.max(0, pointer.y / view.scale)}px`;
    resetField();
  }
  if (document.hasFocus() && !isOwn(document.activeElement)) focusViewer();
}

// ---- clipboard

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch { // not a secure context, or not allowed: as pages did it before there was a clipboard
    el.copybox.hidden = false;
    el.copytext.value = text;
    el.copytext.focus();
    el.copytext.select();
    if (!document.execCommand("copy")) return; // the box stays: the user's own Ctrl+C works
    closeCopybox();
    toast("Copied");
  }
}

function closeCopybox() {
  el.copybox.hidden = true;
  focusViewer();
}

function onPaste(e) {
  if (isOwn(e.target)) return;
  e.preventDefault();
  const text = e.clipboardData.getData("text/plain");
  if (text) sendText(text); else files.take(e.clipboardData);
}

let toastTimer = 0;
function toast(words, ms = 1800) {
  el.toast.textContent = words;
  el.toast.classList.add("shown");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => el.toast.classList.remove("shown"), ms);
}

/** Pictures drawn in the last second, and the median of the last latencies, if any is fresh. */
function rates() {
  const now = performance.now();
  while (pictures.drawn.length && pictures.drawn[0] < now - 1000) pictures.drawn.shift();
  pictures.latencies = pictures.latencies.filter((l) => l.now > now - 2000).slice(-9);
  const sorted = pictures.latencies.map((l) => l.ms).sort((a, b) => a - b);
  return {fps: pictures.drawn.length, latencyMs: sorted.length ? sorted[sorted.length >> 1] : null};
}

// ---- what the viewer asks of the browser, which lets a page do it only soon after a press

const favours = {
  asked: "", until: 0,

  take(favour) {
    Object.assign(favours, {asked: favour, until: performance.now() + 5000});
    favours.grant(true);
  },

  /** Do what was asked. `again`: it may be tried with the next press, if the browser refuses. */
  async grant(again) {
    const {asked} = favours;
    favours.asked = "";
    if (!asked || performance.now() > favours.until) return;
    if (asked === "keyboard") {
      el.field.blur(); // a keyboard that was put away comes back only for a new focus
      el.field.focus({preventScroll: true});
      return;
    }
    if (asked === "files") {
      if (again && navigator.userActivation && !navigator.userActivation.isActive) favours.asked = asked;
      else files.choose();
      return;
    }
    try {
      await (document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen());
    } catch {
      if (again) favours.asked = asked;
      else toast("The browser allows no full screen here");
    }
  },
};

// ---- everything together

const on = (target, names, handler, options) => {
  for (const name of names.split(" ")) target.addEventListener(name, handler, options);
};
const prevent = (e) => e.preventDefault();
const touch = makeTouch({view, pointer, held, ring: el.ring, toFramebuffer, mods, time, send, act, pace, flushPaced});
const files = makeFiles({el, address, credentials, say: toast, welcome: () => link.welcome, leave: focusViewer});

on(canvas, "pointerdown pointermove pointerup pointercancel lostpointercapture", onPointer);
on(canvas, "pointerrawupdate", onRaw);
on(canvas, "pointerleave", (e) => {
  paced.last = null;
  if (e.pointerType !== "touch" && !held.size) act({t: "leave", at: time(e)});
});
on(canvas, "mousedown contextmenu auxclick", prevent); // no selection, no menu, no scrolling by the middle button
on(window, "gesturestart gesturechange", prevent); // Safari's zoom
on(window, "wheel", onWheel, {passive: false});
on(window, "keydown", onKeyDown);
on(window, "keyup", onKeyUp);
on(window, "paste", onPaste);
on(window, "blur pagehide", letGo);
on(window, "online", retryNow);
on(window, "pointerup keydown", () => { favours.grant(false); });
on(document, "fullscreenchange", sendSize);
on(document, "visibilitychange", () => {
  if (document.hidden) letGo();
  act({t: "visible", on: !document.hidden});
  if (!document.hidden) retryNow();
});
on(el.field, "input compositionend", onFieldInput);
on(el.retry, "click", () => { link.delay = RETRY_FIRST; retryNow(); });
on(el.keep, "click", keepPicture);
on(el.copycommand, "click", () => copy(el.command.textContent));
on(el.copydone, "click", closeCopybox);
on(el.again, "click", () => {
  if (link.outdated) location.reload();
  Object.assign(link, {ended: false, refusal: "", tries: 0, delay: RETRY_FIRST});
  showState();
  connect();
});
setInterval(() => {
  if (!link.welcome) showState();
  measure(); // another ratio of pixels is not always told: a page on its way to another monitor, an emulated phone
}, 250);
watchSize();
if (!framed) focusViewer(); // inside a notebook the focus is the notebook's
showState();
connect();
// Without them scenes come as pictures.
loadDrawing().catch((error) => {
  console.info(`This page draws no scenes: ${error.message}`);
  link.undrawn = "This browser cannot run what would draw scenes.";
  if (link.welcome) tellWhoDraws();
});

/** Have the scripts that draw scenes in this browser, beside what the page does meanwhile. */
async function loadDrawing() {
  const {makeChoice} = await import("./splats/choice.js");
  drawing = makeChoice({
    el, send, pass, time, say: toast, kept: store, leave: focusViewer, scale: () => view.scale, caption: () => link.caption,
  });
  if (link.welcome) tellWhoDraws();
  if (layers.layout()) drawing.takeLayout(layers.layout());
  drawing.takeCorner(link.caption.corner);
}

/** Tell a viewer that has just come. */
function tellWhoDraws() {
  if (drawing) drawing.connected();
  else if (link.undrawn) pass({t: "draws", on: false, reason: link.undrawn, max_gaussians: 0});
}

/** What the page does just now, for tests and diagnosis. */
const state = () => ({
  ...rates(), ...view, connected: !!link.welcome, version: link.welcome ? link.welcome.version : "", id,
  frames: pictures.frames, number: pictures.shown ? pictures.shown.number : 0,
  lossless: !!pictures.shown && pictures.shown.lossless, quality: pictures.shown ? pictures.shown.quality : 0,
  typing: link.caption.typing, keys: link.caption.keys, notice: el.notice.hidden ? "" : el.words.textContent,
  stopped: !el.stopped.hidden, drawing: drawing && drawing.state(),
});
Object.defineProperty(window, "splatview", {value: Object.freeze({state})});

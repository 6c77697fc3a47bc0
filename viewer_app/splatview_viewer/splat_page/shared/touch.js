// Fingers: one that moves is the left button, one that rests is the right one, and two take hold of the picture.

const TAP_TIME = 400, TAP_REACH = 30; // ms and CSS pixels within which a second tap is the first one's
const SLOP = 9; // CSS pixels that a finger moves before it drags
const LONG = 500; // ms that a finger rests until it is the right button
const TWIST = 0.25; // radians that two fingers turn before they roll the scene

/**
 * @param {{view: {scale: number}, pointer: {x: number, y: number}, held: Map<string, boolean>, ring: HTMLElement,
 *   toFramebuffer: (x: number, y: number) => {x: number, y: number}, mods: (e: PointerEvent) => number,
 *   time: (e?: Event) => number, send: (message: object) => void, act: (message: object) => void,
 *   pace: (action: () => void) => void, flushPaced: () => void}} page  What the page lends.
 */
export function makeTouch({view, pointer, held, ring, toFramebuffer, mods, time, send, act, pace, flushPaced}) {
  const fingers = new Map();
  let mode = "none"; // rest, drag, pinch; over: what fingers do until all are away does nothing
  let down = null; // where and when the finger came that rests
  let last = null; // the span of two fingers
  let turned = 0, turning = false, tap = {x: 0, y: 0, time: -1e9}, timer = 0;

  /** @param {PointerEvent} e */
  function take(e) {
    const at = time(e), where = toFramebuffer(e.clientX, e.clientY);
    if (e.type === "pointerdown") begin(e, where, at);
    else if (e.type === "pointermove") move(e, where, at);
    else if (fingers.has(e.pointerId)) end(e, at); // up, cancelled, or lost
  }

  function begin(e, where, at) {
    const finger = {...where, dx: 0, dy: 0};
    if (fingers.size === 0) {
      startTap(finger, at);
      mode = "rest";
      down = {x: finger.x, y: finger.y, left: e.clientX, top: e.clientY, at, mods: mods(e)};
      Object.assign(pointer, {x: finger.x, y: finger.y});
      act({t: "move", ...pointer, mods: down.mods, at}); // what is under it shows that it would be pressed
      timer = setTimeout(pressLong, LONG);
      ring.style.left = `${e.clientX}px`;
      ring.style.top = `${e.clientY}px`;
      ring.removeAttribute("hidden");
    } else if (mode === "rest") {
      stopResting();
      send({t: "leave", at});
    } else if (mode === "drag") {
      endDrag(at);
    }
    fingers.set(e.pointerId, finger);
    if (fingers.size === 2) {
      mode = "pinch";
      last = span();
      turned = 0;
      turning = false;
    }
  }

  function move(e, where, at) {
    const finger = fingers.get(e.pointerId);
    if (!finger) return;
    Object.assign(finger, {x: where.x + finger.dx, y: where.y + finger.dy});
    if (mode === "rest") {
      if (Math.hypot(e.clientX - down.left, e.clientY - down.top) < SLOP) return;
      press();
      mode = "drag";
    }
    if (mode === "drag") {
      const to = Object.assign(pointer, {x: finger.x, y: finger.y});
      pace(() => send({t: "move", x: to.x, y: to.y, mods: mods(e), at}));
    } else if (mode === "pinch") {
      pace(() => sendPinch(at));
    }
  }

  function end(e, at) {
    flushPaced();
    if (mode === "rest" && e.type === "pointerup") {
      press();
      endDrag(at);
    } else if (mode === "drag") {
      endDrag(at);
    } else if (fingers.size === 1) {
      stopResting();
      send({t: "leave", at}); // no finger hovers
    }
    fingers.delete(e.pointerId);
    mode = fingers.size ? "over" : "none"; // the finger that stays longer must not turn what was moved
  }

  /** Press the left button where the finger came, and when. */
  function press() {
    stopResting();
    held.set("left", true);
    act({t: "press", x: down.x, y: down.y, button: "left", mods: down.mods, at: down.at, touch: true});
  }

  function endDrag(at) {
    held.delete("left");
    act({t: "release", ...pointer, button: "left", mods: 0, at});
    send({t: "leave", at});
  }

  function pressLong() {
    stopResting();
    mode = "over";
    const at = time();
    act({t: "press", x: down.x, y: down.y, button: "right", mods: down.mods, at, touch: true});
    act({t: "release", x: down.x, y: down.y, button: "right", mods: 0, at});
    if (navigator.vibrate) navigator.vibrate(10);
  }

  function stopResting() {
    clearTimeout(timer);
    ring.setAttribute("hidden", "");
  }

  /** The second of two taps lands where the first one did: fingers do not hit twice within a mouse's few pixels. */
  function startTap(finger, at) {
    const reach = TAP_REACH * view.scale;
    if (at - tap.time < TAP_TIME && Math.hypot(finger.x - tap.x, finger.y - tap.y) < reach) {
      Object.assign(finger, {x: tap.x, y: tap.y, dx: tap.x - finger.x, dy: tap.y - finger.y});
    }
    tap = {x: finger.x, y: finger.y, time: at};
  }

  /** The middle of the two fingers that came first, how far they are apart, and which way the second lies. */
  function span() {
    const [a, b] = [...fingers.values()];
    return {x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, size: Math.max(Math.hypot(a.x - b.x, a.y - b.y), 16 * view.scale),
            angle: Math.atan2(b.y - a.y, b.x - a.x)};
  }

  /** How far the fingers turned since `last`, in radians; 0 until it is more than fingers always do. */
  function twist(now) {
    const by = Math.atan2(Math.sin(now.angle - last.angle), Math.cos(now.angle - last.angle));
    turned += by;
    if (turning) return by;
    turning = Math.abs(turned) > TWIST;
    return 0;
  }

  function sendPinch(at) {
    const now = span(), before = last;
    const turn = twist(now);
    last = now;
    const factor = Math.min(Math.max(now.size / before.size, 0.1), 10);
    send({t: "pinch", x: now.x, y: now.y, factor, dx: now.x - before.x, dy: now.y - before.y, turn, at});
  }

  /** What the fingers do until all are away does nothing. */
  function letGo() {
    stopResting();
    if (mode !== "none") mode = "over";
  }

  return {take, letGo};
}

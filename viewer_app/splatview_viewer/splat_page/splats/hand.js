// What a hand does over the panes that this browser draws: it moves their cameras, and the viewer learns where to.

import {FLIGHT_KEYS, makeFlying} from "./orbit.js";

const SLOP = 3; // CSS pixels that the pointer moves before a press is no click
const FINGER = 15; // CSS pixels that a finger may miss a grip by
const REST = 150; // ms after which the wheel or two fingers rest

/**
 * @param {{panes: ReturnType<typeof import("./panes.js").makePanes>, pass: (message: object) => void,
 *   scale: () => number, caption: () => {typing: boolean, keys: string}}} page  What the page lends: its panes, how a
 *   message goes on to the viewer, pixels of a CSS pixel, and the viewer's word on what has the keyboard.
 */
export function makeHand({panes, pass, scale, caption}) {
  const flying = makeFlying();
  let drag = null; // {pane, press, buttons, isMoving}
  let turning = null; // the pane that the wheel or two fingers move
  let timer = 0; // until they rest
  let flown = null; // the pane that keys move

  /** @param {any} message  What the user did. @returns {boolean}  Whether nothing of it is for the viewer. */
  function take(message) {
    if (message.t === "press") return press(message);
    if (message.t === "move") return drag !== null && follow(message);
    if (message.t === "release") return drag !== null && release(message);
    if (message.t === "wheel" || message.t === "pinch") return turn(message);
    if (message.t === "leave" && turning) rest(); // fingers are away
    return message.t === "key" && takeKey(message);
  }

  const isPopup = () => caption().keys === "popup";

  function handle(pane, message) {
    const [x, y, width, height] = pane.box;
    const isMoved = pane.orbit.handle(message, {x, y, width, height}, pane.drawing?.looks_around);
    if (isMoved) panes.draw(pane);
  }

  function press(message) {
    if (drag) { // one more button: no click will come of it
      begin();
      drag.buttons.add(message.button);
      handle(drag.pane, message);
      return true;
    }
    const pane = panes.paneAt(message.x, message.y);
    if (!pane || isPopup() || caption().typing) return false;
    const reach = message.touch ? FINGER * scale() : 0;
    if (message.button === "left" && panes.isGrip(pane, message.x, message.y, reach)) return false;
    panes.activate(pane);
    drag = {pane, press: message, buttons: new Set([message.button]), isMoving: false};
    handle(pane, message);
    return true;
  }

  function begin() {
    if (drag.isMoving) return;
    drag.isMoving = true;
    panes.beginMove(drag.pane);
  }

  function follow(message) {
    const {press: from} = drag;
    if (!drag.isMoving && Math.hypot(message.x - from.x, message.y - from.y) < SLOP * scale()) return true;
    begin();
    handle(drag.pane, message);
    return true;
  }

  function release(message) {
    const {pane, press: from, buttons, isMoving} = drag;
    buttons.delete(message.button);
    handle(pane, message);
    if (buttons.size) return true;
    drag = null;
    if (isMoving) {
      panes.endMove(pane);
    } else { // a click, which is the viewer's
      pass(from);
      pass(message);
    }
    return true;
  }

  function turn(message) {
    const pane = drag?.pane ?? turning ?? panes.paneAt(message.x, message.y);
    if (!pane || isPopup()) return false;
    const isUpright = message.t === "wheel" && Math.abs(message.dy) >= Math.abs(message.dx);
    if (pane.drawing?.looks_around && isUpright && !message.mods) return false; // the speed of flying
    if (turning !== pane) {
      turning = pane;
      panes.beginMove(pane);
    }
    handle(pane, message);
    clearTimeout(timer);
    if (!("turn" in message)) timer = setTimeout(rest, REST); // fingers on the glass say themselves when they leave it
    return true;
  }

  function rest() {
    clearTimeout(timer);
    const pane = turning;
    turning = null;
    panes.endMove(pane);
  }

  function takeKey({name, pressed: isDown, mods}) {
    const pane = flyable();
    const isArrow = ["left", "right", "up", "down"].includes(name);
    const isTaken = isPopup() || caption().typing || (isArrow && caption().keys === "control");
    if (isDown && name in FLIGHT_KEYS && (!pane || isTaken)) return false;
    if (!flying.key(name, isDown, mods)) return false;
    if (isDown && !flown) {
      flown = pane;
      panes.beginMove(pane);
      fly();
    }
    return true;
  }

  /** The pane that has the keyboard, if it can fly. */
  const flyable = () => panes.all.find((pane) => pane.isActive && panes.canMove(pane)) ?? null;

  function fly() {
    const pane = flown;
    if (!panes.canMove(pane)) flying.letGo();
    const motion = flying.step(performance.now() / 1000, pane.drawing?.speed);
    if (motion) {
      pane.orbit.fly(motion);
      panes.draw(pane);
      requestAnimationFrame(fly);
    } else {
      flown = null;
      panes.endMove(pane);
    }
  }

  return {take};
}

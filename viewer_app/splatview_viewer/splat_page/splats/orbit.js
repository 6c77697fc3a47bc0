// The camera of a scene as a hand moves it: the maths of geometry/orbit.py, turning.py and flying.py, for a page that
// draws by itself. A test gives both the same events and compares the cameras.

/**
 * @typedef {[number, number, number]} Vector
 * @typedef {{rotation: number[], target: Vector, distance: number, up: Vector, fov: number,
 *   model: "pinhole" | "ortho" | "fisheye", near: number, far: number}} Place  `OrbitPlace`: rotation row by row.
 * @typedef {{x: number, y: number, width: number, height: number}} Rect
 * @typedef {{viewmat: number[], K: number[], width: number, height: number, model: string, near: number,
 *   far: number}} Camera  Matrices row by row, in OpenCV axes.
 */

const NOTCH = 0.88; // factor of the distance for one notch of the wheel
const SCROLL = 100; // pixels of a notch sideways
const MAX_NOTCHES = 8, MAX_PINCH = 8; // of one event
const NEAREST = 1e-9, FARTHEST = 1e9; // distances
const OUTSIDE = 1e12; // world units along an axis
const POLE = 89 * Math.PI / 180; // elevation at which a turn stops
const SHIFT = 1, CTRL = 2, ALT = 4, SUPER = 8; // bits of a message's `mods`

// ---- vectors and rotations

const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const row = (rotation, index) => rotation.slice(3 * index, 3 * index + 3);

function unit(vector) {
  const length = Math.hypot(...vector);
  return vector.map((part) => part / length);
}

/** Rows times columns of two matrices (3, 3). */
function multiplied(a, b) {
  const product = [];
  for (let i = 0; i < 3; i++) {
    for (let j = 0; j < 3; j++) product.push(a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j]);
  }
  return product;
}

const transposed = (m) => [m[0], m[3], m[6], m[1], m[4], m[7], m[2], m[5], m[8]];
const applied = (rotation, vector) => [0, 1, 2].map((index) => dot(row(rotation, index), vector));

/** A vector turned around a unit axis, right-handed (Rodrigues). */
function spun(vector, axis, angle) {
  const cosine = Math.cos(angle), sine = Math.sin(angle);
  const kept = (1 - cosine) * dot(axis, vector), side = cross(axis, vector);
  return [0, 1, 2].map((k) => cosine * vector[k] + sine * side[k] + kept * axis[k]);
}

/** The unit vector to the right of a camera that is upright; null where it looks along `upward`. */
function levelAxis(ahead, upward) {
  const level = cross(ahead, upward);
  return Math.hypot(...level) < 1e-6 * Math.hypot(...upward) ? null : unit(level);
}

/** The camera that looks straight ahead, with `right` to its right. */
function facing(ahead, right) {
  const forward = unit(ahead), down = unit(cross(forward, right));
  return [...cross(down, forward), ...down, ...forward];
}

/** Radians by which a camera is rolled, clockwise as its user sees it. */
function tilt(rotation, up) {
  const right = row(rotation, 0), ahead = row(rotation, 2), level = levelAxis(ahead, up);
  return level ? Math.atan2(dot(right, cross(ahead, level)), dot(right, level)) : 0;
}

function rolled(rotation, angle) {
  const cosine = Math.cos(-angle), sine = Math.sin(-angle);
  const turned = multiplied([cosine, -sine, 0, sine, cosine, 0, 0, 0, 1], rotation);
  // A step of Newton's keeps thousands of small turns a rotation.
  const square = multiplied(multiplied(turned, transposed(turned)), turned);
  return turned.map((value, index) => 1.5 * value - 0.5 * square[index]);
}

/** A camera turned around a point ahead, which stops short of looking along `up`. */
function turned(rotation, up, yaw, pitch) {
  const upward = unit(up);
  const right = spun(row(rotation, 0), upward, -yaw), ahead = spun(row(rotation, 2), upward, -yaw);
  const elevation = Math.asin(clamp(-dot(ahead, upward), -1, 1));
  const angle = clamp(elevation + pitch, Math.min(-POLE, elevation), Math.max(POLE, elevation)) - elevation;
  const level = levelAxis(ahead, upward) || right;
  return facing(spun(ahead, level, -angle), spun(right, level, -angle));
}

/** A vector on the screen turned clockwise. */
const turnedOnScreen = (x, y, angle) =>
  [Math.cos(angle) * x - Math.sin(angle) * y, Math.sin(angle) * x + Math.cos(angle) * y];

/** An angle from -pi to pi. */
const wrapped = (angle) => angle - 2 * Math.PI * Math.round(angle / (2 * Math.PI));

/** K's fy of a picture that shows `fov` degrees vertically. */
function focalLength(fov, height, model) {
  const half = fov * Math.PI / 360;
  return height / 2 / (model === "fisheye" ? half : Math.tan(half));
}

// ---- the camera

/** @param {Place} place */
export function makeOrbit(place) {
  const camera = {...place, rotation: [...place.rotation], target: [...place.target], up: [...place.up]};
  let grab = null; // the pointer's last place, and what the drag does

  /** Move with the target: right, down, forward, in world units. */
  function move([right, down, forward]) {
    if (camera.model === "ortho") { // what it shows does not change as it goes forward: it magnifies instead
      const exponent = clamp(-forward / camera.distance, -5, 5);
      camera.distance = clamp(camera.distance * Math.exp(exponent), NEAREST, FARTHEST);
      forward = 0;
    }
    const step = applied(transposed(camera.rotation), [right, down, forward]);
    camera.target = camera.target.map((value, k) => clamp(value + step[k], -OUTSIDE, OUTSIDE));
  }

  function pan(dx, dy, height) {
    const pixel = camera.distance / focalLength(camera.fov, height, camera.model);
    move([-dx * pixel, -dy * pixel, 0]);
  }

  /** Come nearer by a factor of the distance, towards a pixel's point at the target's depth. */
  function dolly(factor, x, y, rect) {
    const pixel = camera.distance / focalLength(camera.fov, rect.height, camera.model);
    const right = (x - rect.x - rect.width / 2) * pixel, down = (y - rect.y - rect.height / 2) * pixel;
    const distance = clamp(camera.distance * factor, NEAREST, FARTHEST), share = 1 - distance / camera.distance;
    const step = applied(transposed(camera.rotation), [right * share, down * share, 0]);
    camera.target = camera.target.map((value, k) => clamp(value + step[k], -OUTSIDE, OUTSIDE));
    camera.distance = distance;
  }

  function orbit(yaw, pitch) {
    camera.rotation = turned(camera.rotation, camera.up, yaw, pitch);
  }

  /** Turn in place; the target comes along. */
  function look(yaw, pitch) {
    const before = row(camera.rotation, 2);
    orbit(yaw, -pitch);
    const ahead = row(camera.rotation, 2);
    camera.target = camera.target.map((value, k) => value + (ahead[k] - before[k]) * camera.distance);
  }

  function roll(angle) {
    camera.rotation = rolled(camera.rotation, angle);
  }

  function dragOf(event, looksAround) {
    if (event.button !== "left" || event.mods & SHIFT) return "pan";
    if (event.mods & CTRL) return "roll";
    return looksAround ? "look" : "orbit";
  }

  function follow(event, rect) {
    const {drag, x, y} = grab, height = Math.max(rect.height, 1);
    const dx = event.x - x, dy = event.y - y;
    Object.assign(grab, {x: event.x, y: event.y});
    if (drag === "pan") {
      pan(dx, dy, rect.height);
    } else if (drag === "roll") {
      const centerX = rect.x + rect.width / 2, centerY = rect.y + rect.height / 2;
      const before = Math.atan2(y - centerY, x - centerX);
      roll(-wrapped(Math.atan2(event.y - centerY, event.x - centerX) - before));
    } else {
      // The drag as it were if the camera was upright.
      const [right, down] = turnedOnScreen(dx, dy, tilt(camera.rotation, camera.up));
      if (drag === "look") {
        const angle = 1.5 * camera.fov * Math.PI / 180 / height;
        look(right * angle, -down * angle);
      } else { // a drag over the height of the picture is half a turn
        orbit(right * Math.PI / height, down * Math.PI / height);
      }
    }
    return dx !== 0 || dy !== 0;
  }

  function scroll(event, rect) {
    const dx = clamp(event.dx, -MAX_NOTCHES, MAX_NOTCHES), dy = clamp(event.dy, -MAX_NOTCHES, MAX_NOTCHES);
    if (event.mods & SHIFT) pan(-dx * SCROLL, dy * SCROLL, rect.height);
    else if (Math.abs(dx) > Math.abs(dy)) pan(-dx * SCROLL, 0, rect.height); // fingers never go quite straight
    else dolly(NOTCH ** dy, event.x, event.y, rect);
    return dx !== 0 || dy !== 0;
  }

  function pinch(event, rect) {
    grab = null;
    const {dx, dy, factor, turn = 0} = event;
    pan(dx, dy, rect.height);
    dolly(1 / clamp(factor, 1 / MAX_PINCH, MAX_PINCH), event.x, event.y, rect);
    if (turn) { // clockwise around the fingers' middle at the target's depth
      const x = event.x - rect.x - rect.width / 2, y = event.y - rect.y - rect.height / 2;
      const [turnedX, turnedY] = turnedOnScreen(x, y, turn);
      roll(-turn);
      pan(x - turnedX, y - turnedY, rect.height);
    }
    return dx !== 0 || dy !== 0 || factor !== 1 || turn !== 0;
  }

  /**
   * Follow what the user does: left drags orbit (or look around), right ones pan, Ctrl and left rolls; the wheel
   * comes nearer.
   * @param {object} event  A message as pages send it.
   * @param {Rect} rect  Of the picture.
   * @param {boolean} [looksAround]  Whether a left drag turns the camera in place.
   * @returns {boolean}  Whether the camera moved, or a drag ended.
   */
  function handle(event, rect, looksAround = false) {
    if (event.t === "press") grab = {x: event.x, y: event.y, drag: dragOf(event, looksAround)};
    else if (event.t === "move" && grab) return follow(event, rect);
    else if (event.t === "wheel") return scroll(event, rect);
    else if (event.t === "pinch") return pinch(event, rect);
    else if (event.t === "release") {
      const dragged = grab !== null;
      grab = null;
      return dragged;
    }
    return false;
  }

  /** Fly by a motion of `makeFlying`. */
  function fly([right, down, forward, upward, clockwise]) {
    const up = applied(camera.rotation, unit(camera.up)); // in the camera's axes
    move([right, down, forward].map((part, k) => (part + up[k] * upward) * camera.distance));
    if (clockwise) roll(clockwise);
  }

  /** @returns {Camera}  For a picture of this size; the vertical field of view does not depend on it. */
  function cameraFor(width, height) {
    const {rotation, target, distance, model, near, far} = camera;
    const focal = focalLength(camera.fov, height, model) / (model === "ortho" ? distance : 1);
    const [x, y, z] = applied(rotation, target);
    const viewmat = [
      ...row(rotation, 0), -x,
      ...row(rotation, 1), -y,
      ...row(rotation, 2), distance - z, // the target lies straight ahead
      0, 0, 0, 1,
    ];
    return {viewmat, K: [focal, 0, width / 2, 0, focal, height / 2, 0, 0, 1], width, height, model, near, far};
  }

  return {
    handle, fly, cameraFor,
    /** @returns {Place} */
    place: () => ({...camera, rotation: [...camera.rotation], target: [...camera.target], up: [...camera.up]}),
    letGo() { grab = null; },
    get isDragging() { return grab !== null; },
  };
}

/** The same view at another size, which shows all that this one shows. @param {Camera} camera @returns {Camera} */
export function fitted(camera, width, height) {
  const factor = Math.min(width / camera.width, height / camera.height), K = [...camera.K];
  for (const [focal, middle, from, to] of [[0, 2, camera.width, width], [4, 5, camera.height, height]]) {
    K[focal] *= factor;
    K[middle] = (K[middle] - from / 2) * factor + to / 2;
  }
  return {...camera, K, width, height};
}

// ---- keys that are held

/** Motion of each key: right, down and forward along the camera's axes, upward in the world, roll clockwise. */
export const FLIGHT_KEYS = {
  d: [0, 1], a: [0, -1], right: [0, 1], left: [0, -1], up: [1, -1], down: [1, 1], w: [2, 1], s: [2, -1], e: [3, 1],
  q: [3, -1], c: [4, 1], z: [4, -1],
};
const RATES = [0.6, 0.6, 0.8, 0.6, 1]; // a second: the first four in distances to the target, the last in radians
const FAST = 4, SLOW = 0.25;
const RESPONSE = 0.07; // seconds in which a speed comes within a third of another one
const SLOWEST = 2e-3; // speed at which the camera stops
const MAX_STEP = 0.5; // seconds that a step counts at most

/** Keys that are held, and the camera's motion that comes of them. */
export function makeFlying() {
  const held = new Set();
  let factor = 1, velocity = [0, 0, 0, 0, 0], steppedAt = null;

  /** @returns {boolean}  Whether the key moves the camera. */
  function key(name, pressed, mods) {
    const shift = name === "shift" ? pressed : mods & SHIFT, alt = name === "alt" ? pressed : mods & ALT;
    factor = shift ? FAST : alt ? SLOW : 1;
    if (!(name in FLIGHT_KEYS)) return false;
    if (!pressed) return held.delete(name);
    if (mods & (CTRL | SUPER)) return false; // the release of a shortcut may never come
    held.add(name);
    return true;
  }

  function wantedVelocity(speed) {
    const directions = [0, 0, 0, 0, 0];
    for (const name of held) {
      const [axis, sign] = FLIGHT_KEYS[name];
      directions[axis] += sign;
    }
    return directions.map((sign, axis) => clamp(sign, -1, 1) * RATES[axis] * (axis < 4 ? speed * factor : 1));
  }

  /**
   * The motion since the last call, exact however often this is called; null while the camera rests.
   * @param {number} now  Seconds. @param {number} [speed]  Set by hand; times what the scene suggests.
   */
  function step(now, speed = 1) {
    const seconds = steppedAt === null ? 0 : clamp(now - steppedAt, 0, MAX_STEP);
    steppedAt = now;
    if (!held.size && !velocity.some(Boolean)) {
      steppedAt = null;
      return null;
    }
    const aim = wantedVelocity(speed), decay = Math.exp(-seconds / RESPONSE);
    const lag = velocity.map((value, axis) => value - aim[axis]);
    let motion = aim.map((value, axis) => value * seconds + lag[axis] * RESPONSE * (1 - decay));
    velocity = aim.map((value, axis) => value + lag[axis] * decay);
    if (!held.size && Math.max(...velocity.map(Math.abs)) < SLOWEST * speed) { // the rest of the way at once
      motion = motion.map((value, axis) => value + velocity[axis] * RESPONSE);
      velocity = [0, 0, 0, 0, 0];
      steppedAt = null;
    }
    return motion;
  }

  return {key, step, letGo() { held.clear(); factor = 1; }};
}

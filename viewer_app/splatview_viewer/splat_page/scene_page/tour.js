// The camera path of a file: places that lie evenly in time, and the way between them.

import {bytesOf} from "./unpack.js";

const NUMBERS = 8; // of a place: position, quaternion w x y z of the camera's axes in the world, field of view

/**
 * @typedef {import("./orbit.js").Place} Place
 * @typedef {{seconds: number, model: Place["model"], count: number, places: string}} Path
 */

/** @param {Path} path @param {number[]} origin  What positions are relative to. */
export function makeTour(path, origin) {
  const values = new Float32Array(bytesOf(path.places, path.count * NUMBERS * 4).buffer, 0, path.count * NUMBERS);

  /**
   * The camera after so many seconds: it can be moved on around what is before it, as far away as the target of `home`.
   * @param {number} seconds @param {Place} home
   * @returns {Place}
   */
  function placeAt(seconds, home) {
    const at = Math.min(seconds / path.seconds, 1) * (path.count - 1), first = Math.min(Math.floor(at), path.count - 2);
    const numbers = between(valuesAt(first), valuesAt(first + 1), at - first);
    const position = origin.map((value, k) => value + numbers[k]);
    const rotation = rotationOf(numbers.slice(3, 7)), ahead = rotation.slice(6);
    const depth = ahead.reduce((sum, part, k) => sum + part * (home.target[k] - position[k]), 0);
    const distance = path.model === "ortho" ? 1 : depth > home.near ? depth : home.distance;
    const target = position.map((value, k) => value + ahead[k] * distance);
    return {...home, rotation, target, distance, fov: numbers[7], model: path.model};
  }

  const valuesAt = (index) => [...values.subarray(index * NUMBERS, (index + 1) * NUMBERS)];

  return {seconds: path.seconds, placeAt};
}

/** Places are near each other, so that a straight way is as good as one on the sphere of quaternions. */
function between(a, b, share) {
  const isOpposite = a[3] * b[3] + a[4] * b[4] + a[5] * b[5] + a[6] * b[6] < 0;
  return a.map((value, k) => {
    const end = isOpposite && k >= 3 && k < 7 ? -b[k] : b[k];
    return value + (end - value) * share;
  });
}

/** World to camera, row by row, of the camera's axes in the world. */
function rotationOf(quaternion) {
  const length = Math.hypot(...quaternion);
  const [w, x, y, z] = quaternion.map((part) => part / length);
  return [
    1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y),
    2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x),
    2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y),
  ];
}

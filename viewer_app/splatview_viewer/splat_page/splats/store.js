// Packed blocks of Gaussians in textures, in two sets: one is drawn while the next version comes into the other.
// `splatview_viewer.blocks.layout` is the table of what a block's parts are.

import {makeTexture, writeRows} from "./gl.js";

const BLOCK = 1024, HEADER = 24; // Gaussians of a block and numbers of its header
const HEADER_TEXELS = HEADER / 4, HEADER_BYTES = HEADER * 4;
const FORM = 3, HARMONICS_FLAG = 7; // numbers of a header; the second is what read_blocks.glsl knows harmonics by
const FORMS = {quick: 1, exact: 2}; // as the header names them; and how many texels of 16 bytes a Gaussian has
const HEADROOM = 1.25; // so that a scene that grows does not need new textures with each version
const FEWEST = 16; // blocks that there is always room for

let ages = 0; // of versions that came, to any store: an answer of the sorter names one

/**
 * @typedef {{number: number, pass?: number, count: number, sh_degree: number, sh_stored: number, origin: number[],
 *   antialiased?: boolean}} Version  pass: that brings it; sh_stored: coefficients beyond the first.
 */

/** @param {WebGL2RenderingContext} gl @param {{postMessage: (message: object, moved?: object[]) => void}} sorter */
export function makeStore(gl, sorter) {
  const most = gl.getParameter(gl.MAX_TEXTURE_SIZE); // rows of a texture
  const sets = [makeSet(0), makeSet(1)];
  let front = 0; // the one that is drawn
  let coming = false; // whether the other one takes what is put

  function makeSet(index) {
    return {index, version: null, age: 0, puts: 0, rows: 0, sh_rows: 0, textures: {}, headers: new Float32Array(0),
            changed: [0, 0]};
  }

  /**
   * Begin with a version: what is put belongs to it from now on. One that was not committed is dropped.
   * @param {Version} version
   * @returns {string}  Why it cannot be held here, or "".
   */
  function begin(version) {
    const {count, sh_stored} = version;
    const blocks = Math.ceil(count / BLOCK), shRows = Math.ceil(sh_stored / 4);
    const coefficients = `${count} Gaussians with ${sh_stored + 1} coefficients each`;
    if (!(blocks * Math.max(shRows, 1) <= most)) return `${coefficients} are more than this browser's textures hold`;
    const set = sets[1 - front];
    coming = false;
    if (!reserve(set, blocks, shRows)) return `this browser's GPU has no memory for ${coefficients}`;
    coming = true;
    set.version = version;
    set.age = ages += 1;
    set.headers = new Float32Array(blocks * HEADER);
    set.changed = [0, blocks];
    sorter.postMessage({t: "begin", set: set.index, count});
    return "";
  }

  /** Make room in a set. Returns whether there was the memory. */
  function reserve(set, blocks, shRows) {
    const mostRows = Math.floor(most / Math.max(shRows, 1));
    const rows = Math.min(Math.max(Math.ceil(blocks * HEADROOM), FEWEST), mostRows);
    if (set.rows >= blocks && set.rows <= 4 * rows && set.sh_rows === shRows) return true;
    release(set);
    set.textures = {
      words: makeTexture(gl, gl.RGBA32UI, 2 * BLOCK, rows),
      headers: makeTexture(gl, gl.RGBA32F, HEADER_TEXELS, rows),
      harmonics: shRows ? makeTexture(gl, gl.RGBA32UI, BLOCK, rows * shRows) : makeTexture(gl, gl.RGBA32UI, 1, 1),
    };
    const isFull = gl.getError() === gl.OUT_OF_MEMORY;
    if (isFull) release(set);
    else Object.assign(set, {rows, sh_rows: shRows});
    return !isFull;
  }

  function release(set) {
    for (const texture of Object.values(set.textures)) gl.deleteTexture(texture);
    Object.assign(set, {textures: {}, version: null, rows: 0, headers: new Float32Array(0), changed: [0, 0]});
  }

  /**
   * Take a part of a block, for the version that is coming, or else for the one that is drawn. The buffer is moved on.
   * @param {number} block @param {"quick" | "exact" | "harmonics"} part @param {ArrayBuffer} buffer
   */
  function put(block, part, buffer) {
    const set = coming ? sets[1 - front] : sets[front], blocks = set.headers.length / HEADER;
    if (!Number.isInteger(block) || block < 0 || block >= blocks) throw new RangeError(`block ${block} of ${blocks}`);
    const size = part === "harmonics" ? set.sh_rows * BLOCK * 16 : HEADER_BYTES + FORMS[part] * BLOCK * 16;
    if (buffer.byteLength !== size) throw new RangeError(`${part} has ${buffer.byteLength} bytes, not ${size}`);
    if (part === "harmonics") putHarmonics(set, block, buffer);
    else putGaussians(set, block, FORMS[part], buffer);
    set.puts += 1;
    const [low, high] = set.changed;
    set.changed = low < high ? [Math.min(low, block), Math.max(high, block + 1)] : [block, block + 1];
  }

  function putHarmonics(set, block, buffer) {
    const box = [0, block * set.sh_rows, BLOCK, set.sh_rows];
    writeRows(gl, set.textures.harmonics, box, [gl.RGBA_INTEGER, gl.UNSIGNED_INT], new Uint32Array(buffer));
    set.headers[block * HEADER + HARMONICS_FLAG] = 1;
  }

  function putGaussians(set, block, form, buffer) {
    const header = set.headers.subarray(block * HEADER, (block + 1) * HEADER);
    const hasHarmonics = header[HARMONICS_FLAG];
    header.set(new Float32Array(buffer, 0, HEADER));
    if (header[FORM] !== form) throw new RangeError(`a header of form ${header[FORM]}, not ${form}`);
    header[HARMONICS_FLAG] = hasHarmonics;
    const box = [0, block, BLOCK * form, 1];
    const words = new Uint32Array(buffer, HEADER_BYTES);
    writeRows(gl, set.textures.words, box, [gl.RGBA_INTEGER, gl.UNSIGNED_INT], words);
    sorter.postMessage({t: "block", set: set.index, block, buffer}, [buffer]);
  }

  /** Have these Gaussians of the version that a pass brought stand out, and no others. */
  function mark(pass, marked) {
    for (const set of sets.filter(({version}) => version?.pass === pass)) {
      set.puts += 1;
      sorter.postMessage({t: "mark", set: set.index, marked});
    }
  }

  /** The version that is drawn from here on is the one that came. */
  function swap() {
    front = 1 - front;
    coming = false;
  }

  /** The set that is drawn, with its headers as they are by now. */
  function drawn() {
    const set = sets[front];
    const [low, high] = set.changed;
    if (low < high) {
      const headers = set.headers.subarray(low * HEADER, high * HEADER);
      writeRows(gl, set.textures.headers, [0, low, HEADER_TEXELS, high - low], [gl.RGBA, gl.FLOAT], headers);
      set.changed = [0, 0];
    }
    return set;
  }

  const close = () => sets.forEach(release);

  return {begin, put, mark, swap, drawn, close, coming: () => (coming ? sets[1 - front] : null)};
}

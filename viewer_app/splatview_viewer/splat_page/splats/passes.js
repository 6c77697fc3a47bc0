// The passes that draw packed Gaussians: those of `render.gl.renderer` and `render.gl.quads`, with the same shaders.

import {cameraUniforms} from "./camera.js";
import {makeDepthBuffer, makeFramebuffer, makeTexture, setUniforms, writeRows} from "./gl.js";
import {FACTS, PAINTS} from "./shaders.js";

const MOST_COLUMNS = 4096; // Gaussians in a row of the textures that hold their order and projections
const SAMPLE_COLUMNS = 512; // of the texture in which numbers are measured
const TILE = 16; // pixels of a side, as in splat.vert and tiles.frag

/** @typedef {import("./draw.js").Options} Options */

/**
 * Make what draws the Gaussians of a set of `store.js`.
 * @param {{gl: WebGL2RenderingContext, blendsFloats: boolean,
 *   use: ReturnType<typeof import("./gl.js").makePrograms>}} context
 */
export function makePasses({gl, blendsFloats, use}) {
  const columns = Math.min(MOST_COLUMNS, gl.getParameter(gl.MAX_TEXTURE_SIZE));
  let order = null; // {texture, rows}
  let visible = 0; // how many of it count
  let projected = null; // {textures, framebuffer, rows}: what project.frag wrote
  let target = null; // {color, depth, ...}: what is blended into
  let sample = null; // {texture, framebuffer, rows}: some of its numbers
  let range = {show: "", low: 0, high: 0, at: 0}; // of the numbers that are shown by colours, and when it was measured

  /** Take the order in which Gaussians are drawn. @param {Int32Array} entries @param {number} count  Of the scene. */
  function takeOrder(entries, count) {
    visible = entries.length;
    const rows = Math.max(Math.ceil(count / columns), 1);
    if (order?.rows !== rows) {
      gl.deleteTexture(order?.texture ?? null);
      order = {texture: makeTexture(gl, gl.R32I, columns, rows), rows};
    }
    const form = [gl.RED_INTEGER, gl.INT], full = Math.floor(visible / columns), rest = visible % columns;
    if (full) writeRows(gl, order.texture, [0, 0, columns, full], form, entries.subarray(0, full * columns));
    if (rest) writeRows(gl, order.texture, [0, full, rest, 1], form, entries.subarray(full * columns));
  }

  /**
   * Draw onto the canvas, or into a texture for `join`.
   * @param {object} set @param {import("./camera.js").Camera} camera @param {Options} options
   * @param {boolean} [isLayer]  Whether into that texture.
   * @returns {number}  Milliseconds after which the range of numbers is to be measured again, by drawing; 0: it is right.
   */
  function draw(set, camera, options, isLayer = false) {
    const show = options.paint ?? "color";
    const paint = PAINTS[show] ?? PAINTS.color;
    reserveTarget(camera.width, camera.height, show === "depth");
    clearTarget();
    const seen = {defines: [], textures: {picture: target.color, depth: target.depth ?? target.color}};
    if (show === "alpha") seen.defines.push("ALPHA");
    if (show === "depth") seen.defines.push("NUMBERS", "DEPTH");
    if (paint.is_mapped) seen.defines.push("NUMBERS");
    let due = 0;
    if (set.version && visible) {
      project(set, camera, options, paint);
      composite(camera, options, paint);
      if (seen.defines.includes("NUMBERS") && !options.range) due = measure(seen, show, paint.composition === "counted");
    }
    if (isLayer) reserveLayer();
    lay(seen, options, isLayer ? target.layerTarget : null);
    return due;
  }

  /** Measure the range of numbers, unless that was just done: it waits for the GPU. Returns after how long to do it. */
  function measure({defines, textures}, show, isCounted) {
    const now = performance.now(), since = now - range.at, {period_ms, shares, seen_alpha} = FACTS.range;
    if (range.show === show && since < period_ms) return period_ms - since;
    const pixels = target.width * target.height, stride = Math.max(Math.floor(pixels / FACTS.range.sample), 1) | 1;
    reserveSample(Math.ceil(pixels / stride / SAMPLE_COLUMNS));
    gl.bindFramebuffer(gl.FRAMEBUFFER, sample.framebuffer);
    gl.viewport(0, 0, SAMPLE_COLUMNS, sample.rows);
    enableOnly(gl);
    use("fullscreen.vert", "show.frag", {
      defines: [...defines, "SAMPLE"], textures, uniforms: {columns: SAMPLE_COLUMNS, stride},
    });
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    const values = new Float32Array(SAMPLE_COLUMNS * sample.rows * 4);
    gl.readPixels(0, 0, SAMPLE_COLUMNS, sample.rows, gl.RGBA, gl.FLOAT, values);
    let count = 0;
    for (let i = 0; i < values.length; i += 4) if (values[i + 1] > seen_alpha) values[count++] = values[i];
    const numbers = values.subarray(0, count).sort();
    const [low, high] = count ? shares.map((share) => quantile(numbers, share)) : [0, 0];
    range = isCounted && count ? {show, low: 0, high: Math.max(Math.ceil(high), 1), at: now} : {show, low, high, at: now};
    return 0;
  }

  function reserveSample(rows) {
    if (sample?.rows === rows) return;
    if (sample) release(sample.framebuffer, [sample.texture]);
    const texture = makeTexture(gl, gl.RGBA32F, SAMPLE_COLUMNS, rows);
    sample = {texture, framebuffer: makeFramebuffer(gl, [texture]), rows};
  }

  function reserveLayer() {
    target.layer ??= makeTexture(gl, gl.RGBA16F, target.width, target.height);
    target.layerTarget ??= makeFramebuffer(gl, [target.layer]);
  }

  /**
   * Lay two pictures onto the canvas: the one that was drawn last, and another one of its size.
   * @param {WebGLTexture} second @param {import("./draw.js").Second} options
   */
  function join(second, {mode, position, gain}) {
    const whole = [0, 0, 1, 1];
    use("fullscreen.vert", "pair.frag", {
      textures: {first_picture: target.layer, second_picture: second},
      uniforms: {
        corner: [0, 0], size: [target.width, target.height], first_part: whole, second_part: whole,
        how: FACTS.pair_modes.indexOf(mode), at: position, gain,
      },
    });
    finish(null);
  }

  /**
   * The mean squared difference of two pictures, as `join` lays them.
   * @param {WebGLTexture} second @returns {number}
   */
  function difference(second) {
    const {width, height} = target, columns = Math.ceil(width / TILE), rows = Math.ceil(height / TILE);
    const texture = makeTexture(gl, gl.R32F, columns, rows), framebuffer = makeFramebuffer(gl, [texture]);
    use("fullscreen.vert", "pair.frag", {
      defines: ["ERROR"],
      textures: {first_picture: target.layer, second_picture: second},
      uniforms: {low: [0, 0], high: [width, height], block: TILE},
    });
    gl.viewport(0, 0, columns, rows);
    enableOnly(gl);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    const sums = new Float32Array(columns * rows * 4);
    gl.readPixels(0, 0, columns, rows, gl.RGBA, gl.FLOAT, sums);
    release(framebuffer, [texture]);
    return sums.reduce((sum, value, i) => (i % 4 ? sum : sum + value), 0) / (3 * width * height);
  }

  /** Fill a target, or the canvas, by the program that is in use. */
  function finish(framebuffer) {
    gl.bindFramebuffer(gl.FRAMEBUFFER, framebuffer);
    gl.viewport(0, 0, target.width, target.height);
    enableOnly(gl);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
  }

  function project(set, camera, options, paint) {
    const {version} = set, degree = Math.min(options.sh_degree ?? version.sh_degree, version.sh_degree);
    reserveProjected(paint.composition === "nearest");
    gl.bindFramebuffer(gl.FRAMEBUFFER, projected.framebuffer);
    gl.viewport(0, 0, columns, Math.ceil(visible / columns));
    enableOnly(gl);
    use("fullscreen.vert", "project.frag", {
      defines: paint.projection_defines,
      reading: "read_blocks.glsl",
      textures: {order: order.texture, ...set.textures},
      uniforms: {
        ...FACTS.uniforms,
        ...cameraUniforms(camera, version.origin),
        count: visible,
        columns,
        sh_rows: set.sh_rows,
        sh_degree: set.sh_rows ? degree : 0,
        antialiased: options.mode ? options.mode === "antialiased" : Boolean(version.antialiased),
        scale: options.scale ?? 1,
        point_reach: options.point_reach ?? FACTS.point_reach,
      },
    });
    gl.drawArrays(gl.TRIANGLES, 0, 3);
  }

  function reserveProjected(withBodies) {
    const names = ["place", "shape", "color", ...(withBodies ? ["body0", "body1", "body2"] : [])];
    if (projected?.rows === order.rows && Object.keys(projected.textures).length === names.length) return;
    if (projected) release(projected.framebuffer, Object.values(projected.textures));
    const textures = Object.fromEntries(names.map((name) => [name, makeTexture(gl, gl.RGBA32F, columns, order.rows)]));
    projected = {textures, framebuffer: makeFramebuffer(gl, Object.values(textures)), rows: order.rows};
  }

  function composite(camera, options, paint) {
    gl.viewport(0, 0, target.width, target.height);
    if (paint.composition === "nearest") drawNearest(options, camera.near ?? FACTS.near);
    else if (paint.composition === "counted") count(options, paint.compositing_defines);
    else blend(options, paint.compositing_defines);
  }

  /** The program that draws, ready but for the first Gaussian. */
  function splats(options, defines) {
    return use("splat.vert", "splat.frag", {
      defines,
      textures: {...projected.textures, tiles: target.tiles},
      uniforms: {
        ...FACTS.uniforms,
        columns,
        size: [target.width, target.height],
        first: 0,
        point_reach: options.point_reach ?? FACTS.point_reach,
      },
    });
  }

  /** Draw bodies by the depth test. */
  function drawNearest(options, near) {
    setUniforms(gl, splats(options, ["BODIES"]), {z_near: near});
    gl.bindFramebuffer(gl.FRAMEBUFFER, target.framebuffer);
    enableOnly(gl, gl.DEPTH_TEST);
    gl.depthFunc(gl.LESS);
    gl.depthMask(true);
    gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, visible);
  }

  /** Add all Gaussians up. */
  function count(options, defines) {
    splats(options, defines);
    gl.bindFramebuffer(gl.FRAMEBUFFER, target.sums);
    enableOnly(gl, gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE);
    gl.blendEquationSeparate(gl.FUNC_ADD, gl.MAX);
    gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, visible);
    gl.blendEquation(gl.FUNC_ADD);
  }

  /** Blend front to back, in batches; after each, what is opaque is neither shaded again nor, in whole tiles, drawn. */
  function blend(options, defines) {
    const wanted = Math.floor(visible * FACTS.pixels_per_gaussian / (target.width * target.height));
    const batches = Math.min(Math.max(wanted, 1), FACTS.max_batches);
    for (let batch = 0; batch < batches; ++batch) {
      const first = Math.floor(visible * batch / batches), end = Math.floor(visible * (batch + 1) / batches);
      if (first) markFinished();
      setUniforms(gl, splats(options, defines), {first});
      gl.bindFramebuffer(gl.FRAMEBUFFER, target.framebuffer);
      gl.viewport(0, 0, target.width, target.height);
      enableOnly(gl, gl.BLEND, ...(first ? [gl.DEPTH_TEST] : []));
      gl.depthFunc(gl.LESS);
      gl.depthMask(false);
      gl.blendFunc(gl.ONE_MINUS_DST_ALPHA, gl.ONE);
      gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, end - first);
    }
  }

  /** Mark pixels and tiles that are opaque. */
  function markFinished() {
    const finished = {textures: {finished: target.color}, uniforms: {enough: 1 - FACTS.transmittance_min}};
    gl.bindFramebuffer(gl.FRAMEBUFFER, target.marks);
    enableOnly(gl, gl.DEPTH_TEST); // without the test depth would not be written
    gl.depthFunc(gl.ALWAYS);
    gl.depthMask(true);
    use("fullscreen.vert", "mark.frag", finished);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    gl.bindFramebuffer(gl.FRAMEBUFFER, target.tileMarks);
    gl.viewport(0, 0, Math.ceil(target.width / TILE), Math.ceil(target.height / TILE));
    enableOnly(gl);
    use("fullscreen.vert", "tiles.frag", finished);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
  }

  function reserveTarget(width, height, withDepth) {
    if (target?.width === width && target.height === height && Boolean(target.depth) === withDepth) return;
    if (target) {
      const framebuffers = [target.marks, target.tileMarks, target.sums, target.layerTarget];
      const textures = [target.color, target.depth, target.tiles, target.layer];
      release(target.framebuffer, textures, framebuffers, target.depthBuffer);
    }
    const color = makeTexture(gl, gl.RGBA16F, width, height);
    const depth = withDepth ? makeTexture(gl, blendsFloats ? gl.RGBA32F : gl.RGBA16F, width, height) : null;
    const tiles = makeTexture(gl, gl.R8, Math.ceil(width / TILE), Math.ceil(height / TILE));
    const depthBuffer = makeDepthBuffer(gl, width, height);
    target = {
      width, height, color, depth, tiles, depthBuffer,
      framebuffer: makeFramebuffer(gl, depth ? [color, depth] : [color], depthBuffer),
      marks: makeFramebuffer(gl, [], depthBuffer), // without the colours, so that the shader can read them
      tileMarks: makeFramebuffer(gl, [tiles]),
      sums: makeFramebuffer(gl, [color]),
      layer: null, layerTarget: null, // for one of two pictures
    };
  }

  /** Make all pixels transparent black, and none finished. */
  function clearTarget() {
    gl.bindFramebuffer(gl.FRAMEBUFFER, target.framebuffer);
    gl.viewport(0, 0, target.width, target.height);
    gl.depthMask(true);
    gl.clearBufferfv(gl.COLOR, 0, [0, 0, 0, 0]);
    if (target.depth) gl.clearBufferfv(gl.COLOR, 1, [0, 0, 0, 0]);
    gl.clearBufferfv(gl.DEPTH, 0, [1]);
  }

  /** Lay the picture over the background. */
  function lay({defines, textures}, options, framebuffer) {
    use("fullscreen.vert", "show.frag", {
      defines,
      textures,
      uniforms: {
        background: options.background ?? [0, 0, 0],
        map: options.map ?? FACTS.map,
        range: options.range ?? [range.low, range.high],
      },
    });
    finish(framebuffer);
  }

  function release(framebuffer, textures, others = [], depthBuffer = null) {
    for (const texture of textures) gl.deleteTexture(texture);
    for (const each of [framebuffer, ...others]) gl.deleteFramebuffer(each);
    gl.deleteRenderbuffer(depthBuffer);
  }

  /** The last picture before it was laid over the background: premultiplied RGBA, row 0 at the top. */
  function pixels() {
    const values = new Float32Array(target.width * target.height * 4);
    gl.bindFramebuffer(gl.FRAMEBUFFER, target.sums);
    gl.readPixels(0, 0, target.width, target.height, gl.RGBA, gl.FLOAT, values);
    return values;
  }

  return {takeOrder, draw, join, difference, pixels, layer: () => target.layer, range: () => range};
}

/** @param {Float32Array} sorted @param {number} share */
function quantile(sorted, share) {
  const place = share * (sorted.length - 1), first = Math.floor(place), last = Math.ceil(place);
  return sorted[first] + (sorted[last] - sorted[first]) * (place - first);
}

function enableOnly(gl, ...wanted) {
  for (const test of [gl.BLEND, gl.DEPTH_TEST]) {
    if (wanted.includes(test)) gl.enable(test);
    else gl.disable(test);
  }
}

// WebGL2 in few words: the context, programs of the viewer's own shaders, textures, targets.

import {SHADERS, VERSION} from "./shaders.js";

const SOFTWARE = /swiftshader|llvmpipe|softpipe|software|basic render/i;

/**
 * Open a canvas for drawing.
 * @param {HTMLCanvasElement | OffscreenCanvas} canvas
 * @returns {{gl: WebGL2RenderingContext | null, reason: string, isSoftware: boolean, blendsFloats: boolean}}  reason:
 *   why nothing can be drawn.
 */
export function openContext(canvas) {
  const options = {alpha: false, antialias: false, depth: false, stencil: false, powerPreference: "high-performance"};
  const gl = /** @type {WebGL2RenderingContext | null} */ (canvas.getContext("webgl2", options));
  const closed = {gl: null, isSoftware: false, blendsFloats: false};
  if (!gl) return {...closed, reason: "this browser has no WebGL2"};
  if (!gl.getExtension("EXT_color_buffer_float")) {
    return {...closed, reason: "this browser's GPU cannot draw into textures of floats (EXT_color_buffer_float)"};
  }
  const info = gl.getExtension("WEBGL_debug_renderer_info");
  const renderer = String(gl.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : gl.RENDERER));
  const blendsFloats = gl.getExtension("EXT_float_blend") !== null;
  return {gl, reason: "", isSoftware: SOFTWARE.test(renderer), blendsFloats};
}

/** @param {string} file @param {string[]} defines @param {string} reading  The file by which it reads Gaussians. */
export function shaderText(file, defines = [], reading = "") {
  const lines = [VERSION, ...defines.map((name) => `#define ${name}`)];
  for (const name of reading ? [reading, file] : [file]) lines.push("#line 1", SHADERS[name]);
  return lines.join("\n");
}

/**
 * Make the programs of shaders, each compiled when it is first called for.
 * @param {WebGL2RenderingContext} gl
 */
export function makePrograms(gl) {
  const programs = new Map();

  function compile(type, file, text) {
    const shader = gl.createShader(type);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost()) {
      throw new Error(`this browser refuses ${file}: ${gl.getShaderInfoLog(shader)}`);
    }
    return shader;
  }

  function link(vertex, fragment, defines, reading) {
    const program = gl.createProgram();
    gl.attachShader(program, compile(gl.VERTEX_SHADER, vertex, shaderText(vertex, defines)));
    gl.attachShader(program, compile(gl.FRAGMENT_SHADER, fragment, shaderText(fragment, defines, reading)));
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost()) {
      throw new Error(`this browser refuses ${fragment}: ${gl.getProgramInfoLog(program)}`);
    }
    return {program, uniforms: readUniforms(gl, program)};
  }

  /** Use a program with its textures and uniforms by name. It may lack some of them, by its defines. */
  return function use(vertex, fragment, {defines = [], reading = "", textures = {}, uniforms = {}}) {
    const key = [vertex, fragment, ...defines].join(" ");
    if (!programs.has(key)) programs.set(key, link(vertex, fragment, defines, reading));
    const linked = programs.get(key);
    gl.useProgram(linked.program);
    let unit = 0;
    for (const [name, texture] of Object.entries(textures)) {
      const uniform = linked.uniforms.get(name);
      if (!uniform) continue;
      gl.activeTexture(gl.TEXTURE0 + unit);
      gl.bindTexture(gl.TEXTURE_2D, texture);
      gl.uniform1i(uniform.location, unit);
      unit += 1;
    }
    setUniforms(gl, linked, uniforms);
    return linked;
  };
}

function readUniforms(gl, program) {
  const uniforms = new Map();
  const count = gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS) || 0; // null: the context is lost
  for (let i = 0; i < count; ++i) {
    const {name, type} = gl.getActiveUniform(program, i);
    uniforms.set(name.replace("[0]", ""), {location: gl.getUniformLocation(program, name), type});
  }
  return uniforms;
}

/** @param {WebGL2RenderingContext} gl @param {{uniforms: Map<string, object>}} linked @param {object} values */
export function setUniforms(gl, linked, values) {
  for (const [name, value] of Object.entries(values)) {
    const uniform = linked.uniforms.get(name);
    if (!uniform) continue;
    const {location, type} = uniform;
    if (type === gl.FLOAT) gl.uniform1f(location, value);
    else if (type === gl.INT || type === gl.BOOL) gl.uniform1i(location, value);
    else if (type === gl.INT_VEC2) gl.uniform2iv(location, value);
    else if (type === gl.FLOAT_VEC2) gl.uniform2fv(location, value);
    else if (type === gl.FLOAT_VEC3) gl.uniform3fv(location, value);
    else if (type === gl.FLOAT_VEC4) gl.uniform4fv(location, value);
    else if (type === gl.FLOAT_MAT3) gl.uniformMatrix3fv(location, false, value);
    else throw new Error(`uniform ${name} has a type that is not known here`);
  }
}

/**
 * Make a texture without filters.
 * @param {WebGL2RenderingContext} gl @param {number} format @param {number} width @param {number} height
 */
export function makeTexture(gl, format, width, height) {
  const texture = gl.createTexture();
  gl.activeTexture(gl.TEXTURE0);
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.texStorage2D(gl.TEXTURE_2D, 1, format, width, height);
  for (const filter of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, filter, gl.NEAREST);
  return texture;
}

/** Write rows of a texture, as they lie in an array. */
export function writeRows(gl, texture, [x, y, width, height], [format, type], array) {
  gl.activeTexture(gl.TEXTURE0);
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.texSubImage2D(gl.TEXTURE_2D, 0, x, y, width, height, format, type, array);
}

/** Make a framebuffer that writes all of some textures. */
export function makeFramebuffer(gl, textures, depth = null) {
  const framebuffer = gl.createFramebuffer();
  gl.bindFramebuffer(gl.FRAMEBUFFER, framebuffer);
  const places = textures.map((_, i) => gl.COLOR_ATTACHMENT0 + i);
  places.forEach((place, i) => gl.framebufferTexture2D(gl.FRAMEBUFFER, place, gl.TEXTURE_2D, textures[i], 0));
  gl.drawBuffers(places.length ? places : [gl.NONE]);
  if (depth) gl.framebufferRenderbuffer(gl.FRAMEBUFFER, gl.DEPTH_ATTACHMENT, gl.RENDERBUFFER, depth);
  return framebuffer;
}

/** Make a buffer of depths. */
export function makeDepthBuffer(gl, width, height) {
  const buffer = gl.createRenderbuffer();
  gl.bindRenderbuffer(gl.RENDERBUFFER, buffer);
  gl.renderbufferStorage(gl.RENDERBUFFER, gl.DEPTH_COMPONENT24, width, height);
  return buffer;
}

// A camera as the viewer has it (`geometry.cameras.Camera`), in numbers for the shaders.

import {FACTS} from "./shaders.js";

/**
 * @typedef {{viewmat: number[], K: number[], width: number, height: number, model?: string, near?: number,
 *   far?: number}} Camera  Matrices row by row: world to camera in OpenCV's axes; pixel centres at +0.5.
 */

/** The camera's translation for points that are relative to an origin. */
function translationFrom(viewmat, origin) {
  return [0, 4, 8].map((i) => viewmat[i] * origin[0] + viewmat[i + 1] * origin[1] + viewmat[i + 2] * origin[2]
                              + viewmat[i + 3]);
}

const near = (camera) => camera.near ?? FACTS.near;
const far = (camera) => camera.far ?? FACTS.far;

/** The slopes x/z and y/z beside the picture to which the projection's Jacobian is clamped, as in gsplat. */
function slopeLimits({K, width, height}) {
  const focal = [K[0], K[4]], center = [K[2], K[5]], size = [width, height];
  const margin = size.map((side, i) => 0.3 * 0.5 * side / focal[i]);
  return {
    limit_low: center.map((at, i) => -(at / focal[i] + margin[i])),
    limit_high: center.map((at, i) => (size[i] - at) / focal[i] + margin[i]),
  };
}

/** Uniforms of project.frag. @param {Camera} camera @param {number[]} origin */
export function cameraUniforms(camera, origin) {
  const {viewmat, K} = camera;
  return {
    rotation: [0, 1, 2].flatMap((column) => [viewmat[column], viewmat[4 + column], viewmat[8 + column]]),
    translation: translationFrom(viewmat, origin),
    focal: [K[0], K[4]],
    center: [K[2], K[5]],
    size: [camera.width, camera.height],
    z_near: near(camera),
    z_far: far(camera),
    model: FACTS.models.indexOf(camera.model ?? "pinhole"),
    ...slopeLimits(camera),
  };
}

/** What camera z is made of: a point's product with an axis, and what is added. @param {Camera} camera */
export function depthOf(camera, origin) {
  return {
    axis: camera.viewmat.slice(8, 11),
    offset: translationFrom(camera.viewmat, origin)[2],
    near: near(camera),
    far: far(camera),
  };
}

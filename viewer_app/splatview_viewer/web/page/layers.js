// The page's two layers: pictures of panes, and the interface over them, each on a canvas of its own. Both are decoded
// beside the main thread, and drawn as soon as they are: the next frame shows them all the same.

const BACKDROP = "#0e0f11"; // around pictures
const MOST_LAYOUTS = 32; // that are remembered: pictures come late, but not so late

/**
 * @typedef {[number, number, number, number]} Box  x, y, width and height.
 * @typedef {{number: number, size: [number, number], panes: [number, Box][]}} Layout
 * @typedef {{number: number, layout: number, boxes: Box[], sizes: number[], format: string, at: number}} Interface
 * @typedef {{number: number, format: string, layout: number, box: Box, bytes: number, at: number, quality: number,
 *   lossless: boolean}} Picture
 */

/**
 * @param {{scene: HTMLCanvasElement, canvas: HTMLCanvasElement, ack: (layer: string, number: number, took: number,
 *   at: number) => void, lost: () => void, shown: (picture: Picture | null) => void, arranged: (layout: Layout) => void,
 *   between: (context: CanvasRenderingContext2D) => void}} page  What the page lends: its canvases, what is told of an
 *   update that is seen or skipped, of the loss of one, of each picture (null: of an interface) that is shown, and of a
 *   new layout; and what draws what lies between the layers.
 */
export function makeLayers({scene, canvas, ack, lost, shown, arranged, between}) {
  const pictures = /** @type {CanvasRenderingContext2D} */ (scene.getContext("2d", {alpha: false}));
  const over = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const layouts = new Map();
  let current = null; // the layout that is shown
  let last = null; // {picture, bitmap}: the newest picture, for the next layout
  let newest = 0; // number of it
  let late = null; // {picture, bitmap}: of a layout whose interface is still to come
  let updates = Promise.resolve(); // of the interface, which are drawn in their order
  let age = 0; // of the connection: what belongs to an older one is dropped

  /** A viewer counts from one for each connection. The layers stay until it sends others. */
  function restart() {
    age += 1;
    newest = 0;
    layouts.clear();
    current = null;
    updates = Promise.resolve();
    if (late) late.bitmap.close();
    late = null;
    if (last && last.picture.of) last.picture.of = {...last.picture.of, number: 0}; // none of the next ones
  }

  /** @param {Layout} layout */
  function takeLayout(layout) {
    layouts.set(layout.number, layout);
    if (layouts.size > MOST_LAYOUTS) layouts.delete(layouts.keys().next().value);
  }

  /** @param {Interface} update @param {ArrayBuffer} data  Its files. @param {number} took */
  function takeInterface(update, data, took) {
    let from = 0;
    const files = update.sizes.map((size) => new Blob([data.slice(from, from += size)], {type: `image/${update.format}`}));
    const bitmaps = Promise.all(files.map(decode));
    const own = age;
    updates = updates.then(async () => {
      try {
        const decoded = await bitmaps;
        if (own === age) drawInterface(update, decoded);
      } catch {
        console.warn(`Interface ${update.number} could not be decoded`);
        if (own === age) lost();
      }
      if (own === age) ack("interface", update.number, took, update.at);
    });
  }

  /** @param {Interface} update @param {ImageBitmap[]} bitmaps  Are closed. */
  function drawInterface(update, bitmaps) {
    const layout = layouts.get(update.layout);
    if (layout && (!current || layout.number !== current.number)) arrange(layout);
    update.boxes.forEach(([x, y, width, height], i) => {
      over.clearRect(x, y, width, height);
      over.drawImage(bitmaps[i], x, y);
      bitmaps[i].close();
    });
    shown(null);
  }

  /** Show the last picture where its panes are now. @param {Layout} layout */
  function arrange(layout) {
    current = layout;
    const [width, height] = layout.size;
    if (canvas.width !== width || canvas.height !== height) {
      for (const one of [scene, canvas]) {
        one.width = width; // empties the canvas
        one.height = height;
      }
    }
    pictures.fillStyle = BACKDROP;
    pictures.fillRect(0, 0, width, height);
    if (last) place(last);
    if (late && late.picture.layout <= layout.number) {
      const {picture, bitmap} = late;
      late = null;
      drawPicture(picture, bitmap);
    }
    arranged(layout);
  }

  /** Draw a picture of panes, in the rectangles that they have now. */
  function place({picture, bitmap}) {
    const [left, top, width, height] = picture.box;
    const layout = picture.of;
    if (!layout || !current) return undefined;
    if (layout.number === current.number) return pictures.drawImage(bitmap, left, top, width, height);
    const scale = bitmap.width / width;
    for (const [number, to] of current.panes) {
      const before = layout.panes.find(([one]) => one === number);
      if (!before) continue;
      // The middle of what the pane showed fills it.
      const [x, y, wide, high] = before[1];
      const factor = Math.min(wide / to[2], high / to[3]);
      const [w, h] = [to[2] * factor, to[3] * factor];
      pictures.drawImage(bitmap, (x - left + (wide - w) / 2) * scale, (y - top + (high - h) / 2) * scale,
                         w * scale, h * scale, ...to);
    }
    return undefined;
  }

  /** Every picture is acknowledged, seen or not: the viewer waits for it before it sends more.
   * @param {Picture} picture @param {Blob[]} parts @param {number} took */
  async function takePicture(picture, parts, took) {
    const own = age;
    let bitmap = null;
    try {
      bitmap = await decode(new Blob(parts, {type: `image/${picture.format}`}));
    } catch {
      console.warn(`Picture ${picture.number} could not be decoded`);
    }
    if (own !== age || !bitmap || picture.number < newest) { // decoded late: a newer one was faster
      if (bitmap) bitmap.close();
      if (own === age) ack("scene", picture.number, took, 0);
      return;
    }
    newest = picture.number;
    drawPicture({...picture, of: layouts.get(picture.layout)}, bitmap);
    ack("scene", picture.number, took, picture.at);
  }

  function drawPicture(picture, bitmap) {
    if (!current || picture.layout > current.number) { // its interface comes
      if (late) late.bitmap.close();
      late = {picture, bitmap};
      return;
    }
    if (last) last.bitmap.close();
    last = {picture, bitmap};
    place(last);
    shown(picture);
  }

  /** Both layers, and what lies between them, as one picture. @returns {Promise<Blob | null>} */
  function picture() {
    const whole = document.createElement("canvas");
    whole.width = canvas.width;
    whole.height = canvas.height;
    const context = /** @type {CanvasRenderingContext2D} */ (whole.getContext("2d"));
    context.drawImage(scene, 0, 0);
    between(context);
    context.drawImage(canvas, 0, 0);
    return new Promise((done) => whole.toBlob(done, "image/png"));
  }

  /** Number of the layout that came last. It is shown with its interface. */
  const newestLayout = () => [...layouts.keys()].at(-1) ?? 0;

  return {restart, takeLayout, takeInterface, takePicture, picture, layout: () => current, newestLayout};
}

/** @param {Blob} file */
const decode = (file) => createImageBitmap(file, {colorSpaceConversion: "none"});

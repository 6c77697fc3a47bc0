// Unpacks the pieces of a scene that the file holds as text: what splat_page/scene_pieces.py makes.

const BLOCK = 1024, HEADER_BYTES = 96, QUICK_BYTES = 16; // of `blocks.layout`: a block's Gaussians, bytes of each

/**
 * @typedef {{part: "quick" | "harmonics", first: number, count: number, bytes: number}} Piece  Blocks of a part from
 *   the first on; bytes: what the text stands for.
 */

/**
 * The bytes of a text: five characters for four of them.
 * @param {string} text @param {number} size  Of the bytes.
 */
export function bytesOf(text, size) {
  const words = new Uint32Array(text.length / 5);
  const digit = (at) => {
    const code = text.charCodeAt(at);
    return code === 125 ? 20 : code - 40; // "}" stands for "<", which would end the text
  };
  for (let i = 0, at = 0; i < words.length; ++i, at += 5) {
    const high = (digit(at) * 85 + digit(at + 1)) * 85 + digit(at + 2);
    words[i] = (high * 85 + digit(at + 3)) * 85 + digit(at + 4);
  }
  return new Uint8Array(words.buffer, 0, size);
}

/** The blocks of a piece, in their order. @param {string} text @param {Piece} piece @returns {Promise<ArrayBuffer[]>} */
export async function unpack(text, {part, count, bytes}) {
  const inflated = new Blob([bytesOf(text, bytes)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const data = new Uint8Array(await new Response(inflated).arrayBuffer());
  if (part === "quick") return quickBlocks(data, count);
  const size = data.length / count;
  return Array.from({length: count}, (_, i) => data.slice(i * size, (i + 1) * size).buffer);
}

/** All headers come first, then the first bytes of all Gaussians, then the second ones: each as what is added to the
 * one before. */
function quickBlocks(data, count) {
  const blocks = [];
  for (let i = 0; i < count; ++i) {
    const block = new Uint8Array(HEADER_BYTES + BLOCK * QUICK_BYTES);
    block.set(data.subarray(i * HEADER_BYTES, (i + 1) * HEADER_BYTES));
    blocks.push(block);
  }
  let at = count * HEADER_BYTES;
  for (let byte = 0; byte < QUICK_BYTES; ++byte) {
    let value = 0;
    for (const block of blocks) {
      for (let to = HEADER_BYTES + byte; to < block.length; to += QUICK_BYTES, ++at) {
        value = (value + data[at]) & 255;
        block[to] = value;
      }
    }
  }
  return blocks.map((block) => block.buffer);
}

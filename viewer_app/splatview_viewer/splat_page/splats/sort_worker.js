// Sorts Gaussians by camera z, beside the page. It keeps the positions of two sets of blocks, as the store has them.

const BLOCK = 1024, HEADER = 24; // Gaussians of a block and numbers of its header: `blocks.layout`
const QUICK = 1;
const MARKED_FROM = 1 << 30; // is added to the index of a Gaussian that is marked
const DIGIT = 11, BUCKETS = 1 << DIGIT; // three digits of a float's 31 bits

const sets = [emptySet(), emptySet()];
let keys = new Uint32Array(0), otherKeys = keys;
let entries = new Int32Array(0), otherEntries = entries;

function emptySet() {
  return {count: 0, positions: new Float32Array(0), present: new Uint8Array(0), marks: null};
}

onmessage = ({data}) => {
  if (data.t === "begin") begin(sets[data.set], data.count);
  else if (data.t === "block") take(sets[data.set], data.block, data.buffer);
  else if (data.t === "mark") mark(sets[data.set], data.marked);
  else sort(data);
};

function begin(set, count) {
  const blocks = Math.ceil(count / BLOCK);
  set.count = count;
  set.present = new Uint8Array(blocks);
  set.marks = null;
  const size = blocks * BLOCK * 3;
  // Neither too small, nor much too large for what comes.
  if (set.positions.length < size || set.positions.length > 4 * size) set.positions = new Float32Array(size);
}

function mark(set, marked) {
  set.marks = marked.length ? new Uint8Array(set.count) : null;
  for (const i of marked) set.marks[i] = 1;
}

function take(set, block, buffer) {
  const header = new Float32Array(buffer, 0, HEADER);
  const to = set.positions.subarray(block * BLOCK * 3, (block + 1) * BLOCK * 3);
  if (header[3] === QUICK) unpackQuick(header, new Uint32Array(buffer, HEADER * 4), to);
  else unpackExact(new Float32Array(buffer, HEADER * 4), to);
  set.present[block] = 1;
}

function unpackQuick(header, words, to) {
  const [x, y, z, , width, height, depth] = header;
  for (let i = 0; i < BLOCK; ++i) {
    const first = words[i * 4], second = words[i * 4 + 1];
    to[i * 3] = x + width * ((first & 0x7fff) / 32767);
    to[i * 3 + 1] = y + height * ((first >>> 15 & 0x7fff) / 32767);
    to[i * 3 + 2] = z + depth * ((second & 0x7fff) / 32767);
  }
}

function unpackExact(words, to) {
  for (let i = 0; i < BLOCK; ++i) {
    to[i * 3] = words[i * 8];
    to[i * 3 + 1] = words[i * 8 + 1];
    to[i * 3 + 2] = words[i * 8 + 2];
  }
}

function sort({set, age, key, drawn, depth, spare}) {
  const {count} = sets[set];
  if (keys.length < count || keys.length > 4 * Math.max(count, BLOCK)) reserve(count);
  const visible = select(sets[set], depth);
  orderByKeys(visible);
  const size = visible * 4;
  const buffer = spare && spare.byteLength >= size && spare.byteLength <= 4 * size ? spare : new ArrayBuffer(size);
  new Int32Array(buffer).set(entries.subarray(0, visible));
  postMessage({age, key, drawn, visible, buffer}, {transfer: [buffer]});
}

function reserve(count) {
  keys = new Uint32Array(count);
  otherKeys = new Uint32Array(count);
  entries = new Int32Array(count);
  otherEntries = new Int32Array(count);
}

/** Write the entries of the Gaussians between near and far, and their keys: the bits of camera z, which order as the
 * positive floats do. Returns how many there are. */
function select({count, positions, present, marks}, {axis, offset, near, far}) {
  const [x, y, z] = axis;
  const values = new Float32Array(keys.buffer);
  let visible = 0;
  for (let block = 0; block < present.length; ++block) {
    if (!present[block]) continue;
    const end = Math.min((block + 1) * BLOCK, count);
    for (let i = block * BLOCK; i < end; ++i) {
      values[visible] = x * positions[i * 3] + y * positions[i * 3 + 1] + z * positions[i * 3 + 2] + offset;
      if (!(values[visible] >= near && values[visible] <= far)) continue;
      entries[visible] = marks?.[i] ? i | MARKED_FROM : i;
      visible += 1;
    }
  }
  return visible;
}

/** Order the first entries by their keys. Stable, as in gsplat: in a tie the first of the scene is the nearer one. */
function orderByKeys(visible) {
  for (let shift = 0; shift < 32; shift += DIGIT) {
    const places = new Uint32Array(BUCKETS + 1);
    for (let i = 0; i < visible; ++i) places[((keys[i] >>> shift) & (BUCKETS - 1)) + 1] += 1;
    for (let digit = 0; digit < BUCKETS; ++digit) places[digit + 1] += places[digit];
    for (let i = 0; i < visible; ++i) {
      const place = places[(keys[i] >>> shift) & (BUCKETS - 1)]++;
      otherKeys[place] = keys[i];
      otherEntries[place] = entries[i];
    }
    [keys, otherKeys] = [otherKeys, keys];
    [entries, otherEntries] = [otherEntries, entries];
  }
}
